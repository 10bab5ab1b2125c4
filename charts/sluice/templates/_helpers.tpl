{{/* SPDX-License-Identifier: Apache-2.0 */}}

{{/* Labels of every object. */}}
{{- define "sluice.labels" -}}
app.kubernetes.io/name: sluice
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* An image: (list . "manager"). */}}
{{- define "sluice.image" -}}
{{- $root := index . 0 -}}
{{ printf "%s/%s:%s" $root.Values.image.registry (index . 1) ($root.Values.image.tag | default $root.Chart.AppVersion) }}
{{- end }}

{{/* Objects of a file that is the same for kustomize, in the release's namespace and with its labels: (list . "files/..."). */}}
{{- define "sluice.objects" -}}
{{- $root := index . 0 -}}
{{- $text := $root.Files.Get (index . 1) | replace "sluice-system" $root.Release.Namespace -}}
{{- range regexSplit "(?m)^---$" $text -1 }}
{{- $object := fromYaml . }}
{{- if $object }}
{{- $labels := merge ($object.metadata.labels | default dict) (include "sluice.labels" $root | fromYaml) }}
{{- $_ := set $object.metadata "labels" $labels }}
---
{{ toYaml $object }}
{{- end }}
{{- end }}
{{- end }}

{{/* The node's directory of programs that the container runtime runs. */}}
{{- define "sluice.hostBinDir" -}}
{{ .Values.agent.hostBinDir | default (printf "%s/bin" (trimSuffix "/" .Values.agent.stateDir)) }}
{{- end }}

{{/* What makes an object one that Helm makes before it deletes the release, in the order of its weight. */}}
{{- define "sluice.hook" }}
    helm.sh/hook: pre-delete
    helm.sh/hook-weight: {{ . | quote }}
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
    helm.sh/hook-output-log-policy: hook-failed,hook-succeeded
{{- end }}

{{/* Labels of what uninstalls. */}}
{{- define "sluice.hookLabels" }}
    {{- include "sluice.labels" . | nindent 4 }}
    app.kubernetes.io/component: uninstall
{{- end }}
