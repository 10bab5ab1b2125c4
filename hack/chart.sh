#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Copies into the chart what is the same for kustomize and for Helm. The chart reads the copies, since a chart is packed
# without what is around it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

files=charts/sluice/files
rm -rf "$files"
mkdir -p "$files"/{crd,rbac,webhook}
cp config/crd/*.yaml "$files/crd/"
for name in service_accounts role role_bindings leader_election agent_policy gate_policy user_roles; do
  cp "config/rbac/$name.yaml" "$files/rbac/"
done
for name in service webhook quota; do
  cp "config/webhook/$name.yaml" "$files/webhook/"
done
