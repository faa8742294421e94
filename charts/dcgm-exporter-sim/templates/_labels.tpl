{{/* Labels that say what these objects are. */}}
{{- define "sim.labels" -}}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: dcgm-exporter-sim
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{ include "sim.selector" . }}
{{- end }}

{{/* What the Service and the ServiceMonitor look for. */}}
{{- define "sim.selector" -}}
app.kubernetes.io/name: dcgm-exporter
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
