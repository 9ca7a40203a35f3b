{{- define "waypost.name" -}}
{{- if contains "waypost" .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-waypost{{ end }}
{{- end }}

{{- define "waypost.selector" -}}
app.kubernetes.io/name: waypost
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "waypost.labels" -}}
{{ include "waypost.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
