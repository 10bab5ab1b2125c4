// SPDX-License-Identifier: Apache-2.0

// Package template keeps the ResourceClaimTemplates that admission points pods at: it makes each from the request in the
// pods' annotation, replaces what somebody else put under its name, and removes it when no pod has referred to it for a
// while. It also tells tenants, in events of their pods, what cannot be seen from the pod alone.
package template
