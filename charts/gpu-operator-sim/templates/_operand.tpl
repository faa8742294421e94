{{/* Labels that say what these objects are; root is the chart's context. */}}
{{- define "sim.labels" -}}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: gpu-operator-sim
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* One container that does nothing: (dict "name" "image" "env" "ports" "mounts"). Privileged as the real ones, so that a
     namespace whose pod security refuses the real operands refuses these too. */}}
{{- define "sim.container" -}}
- name: {{ .name }}
  image: simulated.gpuform.io/{{ .image }}
  imagePullPolicy: IfNotPresent
  securityContext: {privileged: true}
  {{- with .env }}
  env: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .ports }}
  ports: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .mounts }}
  volumeMounts: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{/* A DaemonSet as the real operator would create it:
     (dict "root" "name" "operand" "selector" "init" "containers" "volumes" "maxUnavailable"). The init containers
     say which operands must run on a node before this one starts there. */}}
{{- define "sim.daemonset" -}}
{{- $values := .root.Values.daemonsets -}}
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    app: {{ .name }}
    {{- include "sim.labels" .root | nindent 4 }}
spec:
  selector:
    matchLabels:
      app: {{ .name }}
  updateStrategy:
    {{- if eq $values.updateStrategy "OnDelete" }}
    type: OnDelete
    {{- else }}
    type: RollingUpdate
    rollingUpdate:
      maxUnavailable: {{ .maxUnavailable | default $values.rollingUpdate.maxUnavailable }}
    {{- end }}
  template:
    metadata:
      labels:
        {{- with $values.labels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        app: {{ .name }}
        app.kubernetes.io/part-of: gpu-operator-sim
        simulator.gpuform.io/operand: {{ .operand }}
      annotations:
        {{- with $values.annotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        simulator.gpuform.io/start: waits
    spec:
      automountServiceAccountToken: false
      {{- /* As NVIDIA's: all but the driver and what brings the runtime [its DaemonSets]. */}}
      {{- if not (has .operand (list "driver" "toolkit")) }}
      runtimeClassName: nvidia
      {{- end }}
      nodeSelector: {{- toYaml .selector | nindent 8 }}
      {{- with $values.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      {{- with $values.tolerations }}
      tolerations: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .init }}
      initContainers:
        {{- range . }}
        {{- include "sim.container" . | nindent 8 }}
        {{- end }}
      {{- end }}
      containers:
        {{- range .containers }}
        {{- include "sim.container" . | nindent 8 }}
        {{- end }}
      {{- with .volumes }}
      volumes: {{- toYaml . | nindent 8 }}
      {{- end }}
{{- end }}
