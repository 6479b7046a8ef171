{{- define "weir.name" -}}
{{ .Values.nameOverride | default .Chart.Name | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "weir.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains (include "weir.name" .) .Release.Name -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name (include "weir.name" .) | trunc 50 | trimSuffix "-" }}
{{- end -}}
{{- end }}

{{- define "weir.cluster" -}}
{{ .Values.cluster | default (include "weir.fullname" .) }}
{{- end }}

{{- define "weir.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (ternary (include "weir.fullname" .) "default" .Values.serviceAccount.create) }}
{{- end }}

{{- define "weir.selector" -}}
app.kubernetes.io/name: {{ include "weir.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "weir.labels" -}}
{{ include "weir.selector" . }}
app.kubernetes.io/component: {{ .Values.mode }}
app.kubernetes.io/part-of: weir
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- /* The security context of a container that runs a node. */ -}}
{{- define "weir.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "weir.mounts" -}}
{{- /* Directories, because Kubernetes does not update the files of a subPath. */ -}}
- {name: weir-rules, mountPath: /etc/weir/rules, readOnly: true}
- {name: weir-shared, mountPath: /etc/weir/shared, readOnly: true}
- {name: weir-tokens, mountPath: /etc/weir/tokens, readOnly: true}
{{- if .Values.peerTLSSecret }}
- {name: weir-peer-tls, mountPath: /etc/weir/peer, readOnly: true}
{{- end }}
{{- if .Values.httpTLSSecret }}
- {name: weir-http-tls, mountPath: /etc/weir/http, readOnly: true}
{{- end }}
{{- if and .Values.envoy.enabled (eq .Values.mode "server") }}
- {name: weir-envoy, mountPath: /etc/weir/envoy, readOnly: true}
{{- end }}
{{- if eq (include "weir.volumes" .) "true" }}
- {name: weir-snapshots, mountPath: /var/lib/weir}
{{- end }}
{{- if and (include "weir.bucket" .) .Values.snapshots.bucketCASecret }}
- {name: weir-bucket-ca, mountPath: /etc/weir/bucket, readOnly: true}
{{- end }}
{{- end }}

{{- /* The places of snapshots: weir.bucket is the URL of the bucket, or empty. weir.volumes is
"true" if each pod has a volume. */ -}}
{{- define "weir.bucket" -}}
{{- if .Values.snapshots.enabled }}{{ .Values.snapshots.bucket }}{{ end -}}
{{- end }}
{{- define "weir.volumes" -}}
{{ and .Values.snapshots.enabled (not .Values.snapshots.bucket) }}
{{- end }}

{{- /* The credentials for the bucket. */ -}}
{{- define "weir.envFrom" -}}
{{- if and (include "weir.bucket" .) .Values.snapshots.bucketSecret -}}
envFrom:
- secretRef: {name: {{ .Values.snapshots.bucketSecret }}}
{{- end }}
{{- end }}

{{- define "weir.nodeEnv" -}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
- name: GOMEMLIMIT
  valueFrom: {resourceFieldRef: {resource: requests.memory}}
{{- if and (include "weir.bucket" .) .Values.snapshots.bucketCASecret }}
- {name: SSL_CERT_FILE, value: /etc/weir/bucket/ca.crt}
{{- end }}
{{- end }}

{{- /* The minimum number of nodes of a complete cluster. */ -}}
{{- define "weir.expect" -}}
{{ .Values.expect | default (ternary .Values.autoscaling.minReplicas .Values.replicaCount .Values.autoscaling.enabled) }}
{{- end }}

{{- define "weir.nodePorts" -}}
- {name: peers, containerPort: {{ .Values.ports.peers }}, protocol: TCP}
- {name: gossip, containerPort: {{ .Values.ports.peers }}, protocol: UDP}
{{- end }}

{{- /* The node leaves on SIGTERM. Before that, the pod waits until callers of the Service no
longer use it. Kubernetes itself sleeps, because the image has no shell. */ -}}
{{- define "weir.drain" -}}
{{- with .Values.preStopSeconds -}}
lifecycle:
  preStop: {sleep: {seconds: {{ . }}}}
{{- end }}
{{- end }}

{{- /* The IP families of a Service. The Service of the peers has the families of the pods,
because nodes advertise the addresses of their pods. */ -}}
{{- define "weir.families" -}}
{{- with .Values.service.ipFamilyPolicy }}
ipFamilyPolicy: {{ . }}
{{- end }}
{{- with .Values.service.ipFamilies }}
ipFamilies: {{ toJson . }}
{{- end }}
{{- end }}

{{- /* The container of weir serve. */ -}}
{{- define "weir.container" -}}
{{- $server := eq .Values.mode "server" -}}
- name: weir
  image: "{{ required "image.repository: name where you pushed the image of cmd/weir/Dockerfile, as in --set image.repository=registry.example.com/weir" .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  {{- if not $server }}
  restartPolicy: Always # the node starts before the app and ends after it
  {{- end }}
  args:
  - serve
  - -rules=/etc/weir/rules/rules.yaml
  - -shared=/etc/weir/shared/weir.secret
  - -bind=:{{ .Values.ports.peers }}
  - -advertise=$(POD_IP):{{ .Values.ports.peers }}
  - -join={{ include "weir.fullname" . }}-peers:{{ .Values.ports.peers }}
  - -expect={{ include "weir.expect" . }}
  - -max_keys={{ int64 .Values.maxKeys }}
  {{- if $server }}
  - -checks=:{{ .Values.ports.checks }}
  - -checks_tokens=/etc/weir/tokens/checks
  - -admin=:{{ .Values.ports.admin }}
  {{- else }}
  - -checks=127.0.0.1:{{ .Values.ports.checks }}
  - -admin=127.0.0.1:{{ .Values.ports.admin }}
  {{- end }}
  - -admin_tokens=/etc/weir/tokens/admin
  - -health=:{{ .Values.ports.health }}
  {{- if and $server .Values.envoy.enabled }}
  - -envoy=:{{ .Values.ports.envoy }}
  - -envoy_config=/etc/weir/envoy
  {{- end }}
  {{- if .Values.region }}
  - -region={{ .Values.region }}
  {{- end }}
  {{- range $region, $addresses := .Values.regions }}
  - -regions={{ $region }}={{ join "," $addresses }}
  {{- end }}
  {{- if .Values.peerTLSSecret }}
  - -peer_tls=/etc/weir/peer/tls.crt,/etc/weir/peer/tls.key,/etc/weir/peer/ca.crt
  {{- end }}
  {{- if .Values.httpTLSSecret }}
  - -http_tls=/etc/weir/http/tls.crt,/etc/weir/http/tls.key,/etc/weir/http/ca.crt
  {{- end }}
  {{- with .Values.snapshots }}
  {{- if .enabled }}
  - {{ printf "-snapshots=%s" (.bucket | default "/var/lib/weir") | quote }}
  - -snapshot_every={{ .every }}
  {{- end }}
  {{- end }}
  - -leave_within={{ .Values.leaveWithinSeconds }}s
  - -log_format=json
  {{- range .Values.extraArgs }}
  - {{ . | quote }}
  {{- end }}
  env:
  {{- include "weir.nodeEnv" . | nindent 2 }}
  - name: WEIR_NAME
    valueFrom: {fieldRef: {fieldPath: metadata.name}}
  {{- with include "weir.envFrom" . }}
  {{- . | nindent 2 }}
  {{- end }}
  ports:
  {{- include "weir.nodePorts" . | nindent 2 }}
  {{- if $server }}
  - {name: checks, containerPort: {{ .Values.ports.checks }}, protocol: TCP}
  - {name: admin, containerPort: {{ .Values.ports.admin }}, protocol: TCP}
  {{- if .Values.envoy.enabled }}
  - {name: envoy, containerPort: {{ .Values.ports.envoy }}, protocol: TCP}
  {{- end }}
  {{- end }}
  - {name: health, containerPort: {{ .Values.ports.health }}, protocol: TCP}
  {{- /* Only /live is a reason for a restart: a restart would not make a node ready, and the node
  would lose its counts. */}}
  startupProbe:
    httpGet: {path: /live, port: health}
    periodSeconds: 1
    failureThreshold: 60
  readinessProbe:
    httpGet: {path: /ready, port: health}
    periodSeconds: 1
    timeoutSeconds: 2
    failureThreshold: 3
  livenessProbe:
    httpGet: {path: /live, port: health}
    periodSeconds: 10
    timeoutSeconds: 5
    failureThreshold: 6
  {{- if $server }}
  {{- with include "weir.drain" . }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- end }}
  resources:
    {{- toYaml .Values.resources | nindent 4 }}
  securityContext:
    runAsUser: 65532
    runAsGroup: 65532
    {{- include "weir.confined" . | nindent 4 }}
  volumeMounts:
  {{- include "weir.mounts" . | nindent 2 }}
{{- end }}

{{- /* The container of the app, which has the node in its process in the mode embedded. */ -}}
{{- define "weir.app" -}}
{{- $embedded := eq .Values.mode "embedded" -}}
- name: app
  image: {{ required "app.image: name the image of the service" .Values.app.image | quote }}
  imagePullPolicy: {{ .Values.app.imagePullPolicy }}
  {{- with .Values.app.command }}
  command:
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- with .Values.app.args }}
  args:
  {{- range . }}
  - {{ tpl . $ | quote }}
  {{- end }}
  {{- end }}
  {{- if or $embedded .Values.app.env }}
  env:
  {{- if $embedded }}
  {{- include "weir.nodeEnv" . | nindent 2 }}
  {{- end }}
  {{- with .Values.app.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- end }}
  {{- if $embedded }}
  {{- with include "weir.envFrom" . }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- end }}
  ports:
  {{- if $embedded }}
  {{- include "weir.nodePorts" . | nindent 2 }}
  {{- end }}
  {{- range .Values.app.ports }}
  - {name: {{ .name }}, containerPort: {{ .containerPort }}, protocol: TCP}
  {{- end }}
  {{- range $probe := list "startupProbe" "readinessProbe" "livenessProbe" }}
  {{- with index $.Values.app $probe }}
  {{ $probe }}:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  {{- with include "weir.drain" . }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with ternary .Values.resources .Values.app.resources $embedded }}
  resources:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- .Values.app.securityContext | default (include "weir.confined" . | fromYaml) | toYaml | nindent 4 }}
  {{- if $embedded }}
  volumeMounts:
  {{- include "weir.mounts" . | nindent 2 }}
  {{- end }}
{{- end }}
