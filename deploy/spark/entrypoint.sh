#!/bin/bash
# Spark starts its pods as `driver ARGUMENTS…` or as `executor`, with all else in the environment (as Spark 4.0 does it).
# Anything else is for `eventbus`: `audit FILE` in a Job works on the cores of its own pod.
set -eu
case "${1-}" in
driver)
    shift
    # Executors are given the driver's address, not its name: nobody has to wait until that is known everywhere.
    exec "$SPARK_HOME/bin/spark-submit" --deploy-mode client \
        --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" \
        --conf "spark.driver.host=$SPARK_DRIVER_BIND_ADDRESS" "$@"
    ;;
executor)
    options=()
    for name in "${!SPARK_JAVA_OPT_@}"; do
        options+=("${!name}")
    done
    exec "${JAVA_HOME:+$JAVA_HOME/bin/}java" "${options[@]}" \
        "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
        -cp "${SPARK_CONF_DIR:+$SPARK_CONF_DIR:}$SPARK_HOME/jars/*" \
        org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
        --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
        --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
*)
    exec eventbus "$@"
    ;;
esac
