{{- define "treeward.labels" -}}
app.kubernetes.io/name: treeward
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "treeward.settings" -}}
{{- range $name, $value := .Values.settings }}
{{ $name }} = {{ $value | toJson }}
{{- end }}
{{- if .Values.shop.snapshots }}
snapshots = "/shop/snapshots"
{{- else if not (hasKey .Values.settings "rebuild") }}
rebuild = 0.0
{{- end }}
store = {{ .Values.store | toJson }}
store_password_file = {{ printf "/secrets/%s" .Values.passwordEntry | toJson }}
host = "0.0.0.0"
port = 8000
admin_port = -1
{{- range .Values.keys }}

[[keys]]
name = {{ .name | toJson }}
role = {{ .role | toJson }}
file = {{ printf "/secrets/%s" .entry | toJson }}
{{- end }}
{{- end }}
