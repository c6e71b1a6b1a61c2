"""The fields of an argo-events Sensor, and its known faults: what the page about compatibility is measured against."""

from __future__ import annotations

from collections.abc import Mapping

FIELDS: Mapping[str, str] = {
    "spec": "dependencies triggers template eventBusName replicas revisionHistoryLimit loggingFields "
    "errorOnFailedRound",
    "spec.template": "metadata serviceAccountName container volumes securityContext nodeSelector tolerations "
    "imagePullSecrets priorityClassName priority affinity",
    "spec.dependencies[]": "name eventSourceName eventName filters transform filtersLogicalOperator",
    "spec.dependencies[].transform": "jq script",
    "spec.dependencies[].filters": "exprs exprLogicalOperator data dataLogicalOperator context time script",
    "spec.dependencies[].filters.exprs[]": "expr fields",
    "spec.dependencies[].filters.data[]": "path type value comparator template",
    "spec.dependencies[].filters.time": "start stop timezone",
    "spec.triggers[]": "template parameters policy retryStrategy rateLimit atLeastOnce dlqTrigger",
    "spec.triggers[].parameters[]": "src dest operation",
    "spec.triggers[].parameters[].src": "dependencyName contextKey contextTemplate dataKey dataTemplate value "
    "useRawData",
    "spec.triggers[].policy": "k8s status",
    "spec.triggers[].policy.k8s": "labels backoff errorOnBackoffTimeout",
    "spec.triggers[].policy.status": "allow",
    "spec.triggers[].retryStrategy": "duration factor jitter steps",
    "spec.triggers[].rateLimit": "unit requestsPerUnit",
    "spec.triggers[].template": "name conditions conditionsReset k8s argoWorkflow http awsLambda custom kafka nats "
    "slack openWhisk log azureEventHubs azureServiceBus pulsar email",
    "spec.triggers[].template.conditionsReset[]": "byTime",
    "spec.triggers[].template.conditionsReset[].byTime": "cron timezone",
    "spec.triggers[].template.k8s": "source operation parameters patchStrategy liveObject",
    "spec.triggers[].template.k8s.source": "s3 inline file url configmap git resource",
    "spec.triggers[].template.argoWorkflow": "source operation parameters args",
    "spec.triggers[].template.http": "url payload tls method parameters timeout basicAuth headers secureHeaders "
    "dynamicHeaders host",
    "spec.triggers[].template.kafka": "url topic partition parameters requiredAcks compress flushFrequency tls payload "
    "partitioningKey version sasl schemaRegistry headers secureHeaders",
    "spec.triggers[].template.awsLambda": "functionName accessKey secretKey region payload parameters invocationType "
    "roleARN",
    "spec.triggers[].template.custom": "serverURL secure certSecret serverNameOverride spec parameters payload",
    "spec.triggers[].template.nats": "url subject payload parameters tls auth",
    "spec.triggers[].template.slack": "parameters slackToken channel message attachments blocks thread sender",
    "spec.triggers[].template.slack.thread": "messageAggregationKey broadcastMessageToChannel",
    "spec.triggers[].template.slack.sender": "username icon",
    "spec.triggers[].template.email": "parameters username smtpPassword host port to from subject body",
    "spec.triggers[].template.log": "intervalSeconds",
    "spec.triggers[].template.openWhisk": "host version namespace authToken actionName payload parameters",
    "spec.triggers[].template.azureEventHubs": "fqdn hubName sharedAccessKeyName sharedAccessKey payload parameters",
    "spec.triggers[].template.azureServiceBus": "connectionString queueName topicName subscriptionName tls payload "
    "parameters",
    "spec.triggers[].template.pulsar": "url topic parameters payload tlsTrustCertsSecret tlsAllowInsecureConnection "
    "tlsValidateHostname tls authTokenSecret connectionBackoff authAthenzParams authAthenzSecret",
}
"""Where in a manifest, and which fields argo-events has there."""

PROBLEMS = range(1, 19)
"""Faults of its Kafka bus. Each is described by the test that shows that we do not have it."""

PAINS: Mapping[int, str] = {
    3273: "#3273, #2711, #3481",
    2958: "#2958",
    3063: "#3063",
    3695: "#3695",
    3016: "#3016",
    3017: "#3017, #3358",
    2340: "#2340",
    1977: "#1977",
    948: "#948, #2928",
    3089: "#3089",
    3326: "#3326, #2620",
    850: "#850, #929",
    1747: "#1747, #1516, #1850, #3760, #3790, #4112",
    2851: "#2851",
    1765: "#1765, #1499",
    2451: "#2451",
    3215: "#3215, #3808",
    3339: "#3339",
    1633: "#1633, #2464",
    2146: "#2146",
    1111: "#1111, #2323",
    2011: "#2011, #1015",
    1543: "#1543",
    1366: "#1366, #1458",
    3185: "#3185, #3947",
}
"""Issues of argo-events about the same pain, by the number that a test is named after."""
