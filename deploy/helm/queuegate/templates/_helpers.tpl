{{- define "queuegate.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{- /* Labels by which pods are selected; a component is given by the caller. */ -}}
{{- define "queuegate.selector" -}}
app.kubernetes.io/name: queuegate
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "queuegate.labels" -}}
app.kubernetes.io/name: queuegate
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "queuegate.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- /* Variables of gateways, workers and the migration. */ -}}
{{- define "queuegate.env" -}}
- name: DATABASE_URL
  valueFrom:
    secretKeyRef:
      name: {{ required "database.secretName names the Secret with the URL" .Values.database.secretName }}
      key: {{ .Values.database.secretKey }}
- name: QUEUEGATE_LOG_FORMAT
  value: json
- name: QUEUEGATE_AUTH
  value: {{ .Values.auth }}
{{- if eq .Values.auth "sigv4" }}
- name: QUEUEGATE_MASTER_KEY
  valueFrom:
    secretKeyRef:
      name: {{ required "masterKey.secretName names the Secret with the master key" .Values.masterKey.secretName }}
      key: {{ .Values.masterKey.secretKey }}
{{- end }}
{{- with .Values.env }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "queuegate.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "queuegate.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: ["ALL"]
{{- end -}}

{{- define "queuegate.placement" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
