#!/usr/bin/env bash
# Drives kcat (Debian's librdkafka) through the verbs of integration/clients.
# kcat cannot set timestamps: the harness compares with what a reader sees.
set -euo pipefail
verb=$1 bootstrap=$2 topic=$3
case $verb in
produce)
  codec=$4 count=$5 first=$6
  text=$(printf 'varve %.0s' $(seq 34)); text=${text:0:200}
  seq "$first" $((first + count - 1)) | sed "s/.*/k&\t& $text/" |
    kcat -b "$bootstrap" -P -t "$topic" -p 0 -K "$(printf '\t')" -z "$codec" -X enable.idempotence=true -X linger.ms=5
  ;;
verify)
  group=$4 count=$5 times=$6
  kcat -b "$bootstrap" -q -c "$count" -X auto.offset.reset=earliest -f '%o\t%T\t%k\t%s\n' -G "$group" "$topic"
  for ts in ${times//,/ }; do
    # "topic [0] offset N"; -1 is none.
    offset=$(kcat -b "$bootstrap" -Q -t "$topic:0:$ts" | sed 's/.*offset //')
    printf 'time\t%s\t%s\n' "$ts" "$offset"
  done
  ;;
esac
