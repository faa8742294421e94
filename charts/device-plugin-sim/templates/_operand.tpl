{{/* Labels that say what these objects are; root is the chart's context. */}}
{{- define "sim.labels" -}}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: device-plugin-sim
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* Labels that all pods of the three DaemonSets share, as in NVIDIA's chart. */}}
{{- define "sim.shared" -}}
app.kubernetes.io/name: {{ .Release.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- with .Values.selectorLabelsOverride }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* One container that does nothing: (dict "name" "env" "mounts" "tag"). Privileged, so that a namespace whose pod
     security refuses the real ones refuses these too. */}}
{{- define "sim.container" -}}
- name: {{ .name }}
  image: simulated.gpuform.io/k8s-device-plugin:v{{ .tag }}
  imagePullPolicy: IfNotPresent
  securityContext: {privileged: true}
  {{- with .env }}
  env: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .mounts }}
  volumeMounts: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
