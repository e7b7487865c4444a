#!/usr/bin/env bash
# setup.sh DIR: installs what the client programs need into DIR, each part once.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"; dir=$(cd "$1" && pwd)

step() { # name: runs install_NAME once, and again after its sources changed
  local name=$1 mark
  mark=$dir/$name.done
  [ "$mark" -nt "$here/setup.sh" ] && [ -z "$(find "$here" -newer "$mark" -type f -path "*$name*" -print -quit)" ] && return
  echo "clients: installing $name"
  "install_$name"
  touch "$mark"
}
install_python() { python3 -m venv "$dir/venv" && "$dir/venv/bin/pip" -q install -r "$here/python/requirements.txt"; }
install_node() { mkdir -p "$dir/node" && cp "$here/node/package.json" "$dir/node/" && (cd "$dir/node" && npm install --silent --no-audit --no-fund); }
install_java() { mvn -q -B -f "$here/java/pom.xml" dependency:copy-dependencies -DoutputDirectory="$dir/jars" && javac -cp "$dir/jars/*" -d "$dir/classes" "$here"/java/*.java; }
install_golang() { (cd "$here/golang" && go build -o "$dir/" ./franz ./sarama ./segmentio); }
install_kcat() { command -v kcat >/dev/null || { $(command -v sudo || true) apt-get -qq update && $(command -v sudo || true) apt-get -qq install -y kcat; }; }

step golang
command -v python3 >/dev/null && step python
command -v npm >/dev/null && step node
command -v mvn >/dev/null && command -v javac >/dev/null && step java
if command -v apt-get >/dev/null || command -v kcat >/dev/null; then step kcat; fi
