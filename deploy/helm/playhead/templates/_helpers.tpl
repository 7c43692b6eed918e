{{/* Each component is a dict: root, name (edge, service, job or serve), command, config, ports, resources. */}}

{{- define "playhead.fullname" -}}
{{ .root.Release.Name }}-{{ .name }}
{{- end }}

{{- define "playhead.selector" -}}
app.kubernetes.io/name: playhead
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .name }}
{{- end }}

{{- define "playhead.labels" -}}
{{ include "playhead.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{- define "playhead.meta" -}}
metadata:
  name: {{ include "playhead.fullname" . }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "playhead.labels" . | nindent 4 }}
{{- end }}

{{- define "playhead.config" -}}
apiVersion: v1
kind: ConfigMap
{{ include "playhead.meta" . }}
{{- $host := prepend (get .config "host" | default list) (printf "%s.%s.svc" (include "playhead.fullname" .) .root.Release.Namespace) }}
{{- with .root.Values.ingress }}{{ $host = append $host .host }}{{ end }}
data:
  config.yaml: |
    {{- merge (dict "host" $host) .config (dict "log-format" "json") | toYaml | nindent 4 }}
{{- end }}

{{- define "playhead.pod" -}}
{{- $v := .root.Values -}}
metadata:
  labels:
    {{- include "playhead.labels" . | nindent 4 }}
  annotations:
    checksum/config: {{ include "playhead.config" . | sha256sum }}
    {{- with $v.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: {{ $v.gracePeriodSeconds }}
  {{- with $v.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65534
    runAsGroup: 65534
    fsGroup: 65534
    seccompProfile: {type: RuntimeDefault}
  {{- if ne .name "serve" }}
  topologySpreadConstraints:
    {{- range $key := list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
    - maxSkew: 1
      topologyKey: {{ $key }}
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "playhead.selector" $ | nindent 10 }}
    {{- end }}
  {{- end }}
  {{- with $v.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $v.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: {{ .name }}
      image: {{ $v.image.repository }}/{{ .command }}:{{ $v.image.tag | default .root.Chart.AppVersion }}
      imagePullPolicy: {{ $v.image.pullPolicy }}
      args:
        {{- range .args }}
        - {{ . | quote }}
        {{- end }}
        - --config=/etc/playhead/config/config.yaml
      ports:
        {{- range $name, $port := .ports }}
        - {name: {{ $name }}, containerPort: {{ $port }}}
        {{- end }}
      startupProbe:
        httpGet: {path: /healthz, port: admin}
        periodSeconds: 2
        failureThreshold: 60
      livenessProbe:
        httpGet: {path: /healthz, port: admin}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      readinessProbe:
        httpGet: {path: /readyz, port: admin}
        periodSeconds: 2
        timeoutSeconds: 2
        failureThreshold: 2 # out within 4 s, before --lame-duck is over
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      {{- with .resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      volumeMounts:
        - {name: config, mountPath: /etc/playhead/config, readOnly: true}
        {{- range $v.secrets }}
        - {name: secret-{{ . }}, mountPath: /etc/playhead/secrets/{{ . }}, readOnly: true}
        {{- end }}
        {{- if eq .name "serve" }}
        - {name: data, mountPath: /data}
        {{- end }}
  volumes:
    - name: config
      configMap: {name: {{ include "playhead.fullname" . }}}
    {{- range $v.secrets }}
    - name: secret-{{ . }}
      secret: {secretName: {{ . }}, defaultMode: 0440}
    {{- end }}
{{- end }}

{{- define "playhead.service" -}}
apiVersion: v1
kind: Service
{{ include "playhead.meta" . }}
spec:
  {{- if hasKey . "headless" }}
  clusterIP: None
  {{- end }}
  selector:
    {{- include "playhead.selector" . | nindent 4 }}
  ports:
    {{- range $name, $port := .ports }}
    - {name: {{ $name }}, port: {{ $port }}, targetPort: {{ $name }}}
    {{- end }}
{{- end }}

{{/* What each component of the mode services is, as YAML. */}}
{{- define "playhead.components" -}}
{{- $v := .Values -}}
edge:
  command: bff
  ports: {http: 8080, admin: 8081}
  args: [--listen=0.0.0.0:8080, --admin=0.0.0.0:8081, "--service=dns:///{{ .Release.Name }}-service.{{ .Release.Namespace }}.svc:7070"]
service:
  command: history-service
  ports: {grpc: 7070, admin: 7071}
  args: [--listen=0.0.0.0:7070, --admin=0.0.0.0:7071]
  headless: true
  engines: true
job:
  command: history-job
  ports: {admin: 7072}
  args: [--admin=0.0.0.0:7072]
  engines: true
{{- end }}
