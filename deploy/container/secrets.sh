#!/bin/sh
# Makes what compose.yaml needs once, beside it in secrets/: keep sealing-keys apart from the database's backups.
set -eu
cd "$(dirname "$0")"
[ ! -e secrets ] || { echo "secrets/ is there already" >&2; exit 1; }
mkdir -m 0711 secrets
password=$(openssl rand -hex 24)
printf '%s' "$password" >secrets/database-password
printf 'postgresql://dealer:%s@postgres/dealer' "$password" >secrets/database-url
printf 'k1:%s' "$(openssl rand -base64 32)" >secrets/sealing-keys
# A certificate for trials: replace tls.pem by the chain and key of your own.
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 -subj /CN=localhost \
    -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout secrets/key -out secrets/certificate 2>/dev/null
cat secrets/certificate secrets/key >secrets/tls.pem
rm secrets/certificate secrets/key
# Readable by the users of the containers, in a folder that nobody else can list.
chmod 0444 secrets/*
