{{- define "dealer.labels" -}}
app.kubernetes.io/name: esim-dealer
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "dealer.pod" -}}
automountServiceAccountToken: false
# Kubernetes would set DEALER_… variables for a Service of that name, which are no settings.
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
volumes:
  - name: secrets
    secret: {secretName: {{ .Values.secret | quote }}, defaultMode: 0440}
  - name: tmp
    emptyDir: {medium: Memory, sizeLimit: 64Mi}
{{- end }}

{{- define "dealer.container" -}}
image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
volumeMounts:
  - {name: secrets, mountPath: /run/secrets, readOnly: true}
  - {name: tmp, mountPath: /tmp}
env:
  - {name: DATABASE_URL_FILE, value: /run/secrets/database-url}
  - {name: DEALER_SEALING_KEYS_FILE, value: /run/secrets/sealing-keys}
  - {name: DEALER_ENVIRONMENT, value: {{ .Values.environment | quote }}}
  - {name: DEALER_PUBLIC_URL, value: {{ .Values.publicUrl | quote }}}
  - {name: DEALER_TRUSTED_PROXIES, value: {{ .Values.trustedProxies | quote }}}
  - {name: DEALER_VALKEY_URL, value: {{ .Values.valkeyUrl | quote }}}
  - {name: DEALER_INSTANCES, value: {{ .Values.serve.maxReplicas | quote }}}
  - {name: DEALER_DRAIN_SECONDS, value: {{ .Values.serve.drainSeconds | quote }}}
{{- range $name, $value := .Values.settings }}
  - {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end }}
