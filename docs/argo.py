"""The fields of argo-events' manifests, and its known faults: what the page about compatibility is measured against."""

from __future__ import annotations

from collections.abc import Mapping

SENSOR_FIELDS: Mapping[str, str] = {
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
"""Where in a Sensor, and which fields argo-events has there."""

_WEBHOOK = "endpoint method port url serverCertSecret serverKeySecret metadata authSecret maxPayloadSize basicAuth"
EVENT_SOURCE_FIELDS: Mapping[str, str] = {
    "spec": "eventBusName template service replicas minio calendar file resource webhook amqp kafka mqtt nats sns sqs "
    "pubSub github gitlab hdfs slack storageGrid azureEventsHub stripe emitter redis nsq pulsar generic "
    "bitbucketserver bitbucket redisStream azureServiceBus azureQueueStorage sftp gerrit mns",
    "spec.webhook{}": f"{_WEBHOOK} filter",
    "spec.github{}": "id webhook owner repository events apiToken webhookSecret insecure active contentType "
    "githubBaseURL githubUploadURL deleteHookOnFinish metadata repositories organizations githubApp filter",
    "spec.github{}.webhook": _WEBHOOK,
    "spec.github{}.repositories[]": "owner names",
    "spec.github{}.githubApp": "privateKey appID installationID",
    "spec.gitlab{}": "webhook projectID events accessToken enableSSLVerification gitlabBaseURL deleteHookOnFinish "
    "metadata projects secretToken filter groups",
    "spec.bitbucket{}": "deleteHookOnFinish metadata webhook auth events owner projectKey repositorySlug repositories "
    "filter",
    "spec.bitbucket{}.auth": "basic oauthToken",
    "spec.bitbucket{}.repositories[]": "owner repositorySlug",
    "spec.slack{}": "signingSecret token webhook metadata filter",
    "spec.calendar{}": "schedule interval exclusionDates timezone metadata persistence filter",
    "spec.calendar{}.persistence": "catchup configMap",
    "spec.calendar{}.persistence.catchup": "enabled maxDuration",
    "spec.file{}": "eventType watchPathConfig polling metadata filter",
    "spec.file{}.watchPathConfig": "directory path pathRegexp",
    "spec.resource{}": "namespace filter group version resource eventTypes metadata",
    "spec.resource{}.filter": "prefix labels fields createdBy afterStart",
    "spec.amqp{}": "url exchangeName exchangeType routingKey connectionBackoff jsonBody tls metadata exchangeDeclare "
    "queueDeclare queueBind consume auth urlSecret filter",
    "spec.amqp{}.exchangeDeclare": "durable autoDelete internal noWait",
    "spec.amqp{}.queueDeclare": "name durable autoDelete exclusive noWait arguments",
    "spec.amqp{}.queueBind": "noWait",
    "spec.amqp{}.consume": "consumerTag autoAck exclusive noLocal noWait",
    "spec.kafka{}": "url partition topic connectionBackoff tls jsonBody metadata consumerGroup limitEventsPerSecond "
    "version sasl filter config schemaRegistry awsMskIamAuth",
    "spec.kafka{}.consumerGroup": "groupName oldest rebalanceStrategy",
    "spec.mqtt{}": "url topic clientId connectionBackoff jsonBody tls metadata filter auth",
    "spec.nats{}": "url subject connectionBackoff jsonBody tls metadata auth filter queue",
    "spec.nats{}.auth": "basic token nkey credential",
    "spec.sqs{}": "accessKey secretKey region queue waitTimeSeconds roleARN jsonBody queueAccountId metadata dlq "
    "filter endpoint sessionToken",
    "spec.minio{}": "endpoint bucket region insecure accessKey secretKey events filter metadata caCertificate",
    "spec.minio{}.bucket": "key name",
    "spec.minio{}.filter": "prefix suffix",
    "spec.redis{}": "hostAddress password namespace db channels tls metadata filter jsonBody username",
    "spec.redisStream{}": "hostAddress password db streams maxMsgCountPerRead consumerGroup tls metadata filter "
    "username",
    "spec.generic{}": "url config insecure jsonBody metadata authSecret filter",
}
"""Where in an EventSource; of the kinds that are here or are being written."""

EVENT_BUS_FIELDS: Mapping[str, str] = {
    "spec": "nats jetstream kafka jetstreamExotic",
    "spec.kafka": "url topic version tls sasl consumerGroup partitioner consumerBatchMaxWait",
    "spec.kafka.tls": "caCertSecret clientCertSecret clientKeySecret insecureSkipVerify enabled",
    "spec.kafka.sasl": "mechanism userSecret passwordSecret",
    "spec.kafka.consumerGroup": "groupName oldest rebalanceStrategy",
}

FIELDS: Mapping[str, Mapping[str, str]] = {
    "Sensor": SENSOR_FIELDS,
    "EventSource": EVENT_SOURCE_FIELDS,
    "EventBus": EVENT_BUS_FIELDS,
}

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
