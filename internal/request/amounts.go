// SPDX-License-Identifier: Apache-2.0

package request

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

// Bounds of what one container may ask for.
const (
	// MaxGPUs is the most GPUs that one container may ask for.
	MaxGPUs = 16
	// MaxCompute is the whole of one GPU in percent.
	MaxCompute = 100
	// MaxMemoryMi is the most memory of one GPU in Mi, 64Ti: far above any board, far below where sums overflow.
	MaxMemoryMi = 64 << 20

	mebi = 1 << 20
	gibi = 1 << 30
)

// Amounts are what one container asks for. Memory and compute are of each GPU; 0 where the tenant wrote none.
type Amounts struct {
	GPUs     int64
	MemoryMi int64
	Compute  int64
}

// parseAmounts reads the amounts out of a container's limits, and what is worth telling the tenant about them.
func parseAmounts(limits corev1.ResourceList) (Amounts, []string, error) {
	amounts := Amounts{GPUs: 1}
	var warnings []string
	for _, name := range sortedNames(limits) {
		quantity := limits[name]
		var err error
		switch name {
		case v1alpha1.ResourceGPU:
			amounts.GPUs, err = parseInteger(name, quantity, MaxGPUs, "a whole number of GPUs from 1 to 16, such as 1")
		case v1alpha1.ResourceCompute:
			amounts.Compute, err = parseInteger(name, quantity, MaxCompute,
				"percent of one GPU, a whole number from 1 to 100, such as 30; for more than one GPU add "+v1alpha1.ResourceGPU)
		case v1alpha1.ResourceMemory:
			var warning string
			amounts.MemoryMi, warning, err = parseMemory(quantity)
			if warning != "" {
				warnings = append(warnings, warning)
			}
		default:
			err = fmt.Errorf("%s is no resource of Sluice: write %s, %s or %s", name,
				v1alpha1.ResourceGPU, v1alpha1.ResourceMemory, v1alpha1.ResourceCompute)
		}
		if err != nil {
			return Amounts{}, nil, err
		}
	}
	return amounts, warnings, nil
}

// parseInteger reads a whole number from 1 to most; want says what a right value looks like.
func parseInteger(name corev1.ResourceName, quantity resource.Quantity, most int64, want string) (int64, error) {
	value, exact := wholeNumber(quantity)
	if !exact || value < 1 || value > most {
		return 0, fmt.Errorf("%s: %s is refused: write %s", name, quantity.String(), want)
	}
	return value, nil
}

// parseMemory reads bytes and rounds them up to whole Mi. Less than 1Mi is nearly always a forgotten unit.
func parseMemory(quantity resource.Quantity) (memoryMi int64, warning string, err error) {
	name := corev1.ResourceName(v1alpha1.ResourceMemory)
	value, exact := wholeNumber(quantity)
	if !exact || value < 1 {
		return 0, "", fmt.Errorf("%s: %s is refused: write GPU memory in whole bytes with a unit, such as 10Gi or 512Mi",
			name, quantity.String())
	}
	if value > MaxMemoryMi*mebi {
		return 0, "", fmt.Errorf("%s: %s is refused: no GPU has that much; write what one GPU is to give, such as 10Gi",
			name, quantity.String())
	}
	if value < mebi {
		warning = fmt.Sprintf("%s: %s means %d bytes and is rounded up to 1Mi: write 10Gi for 10 GiB", name, quantity.String(), value)
	}
	return (value + mebi - 1) / mebi, warning, nil
}

// wholeNumber is the value of a quantity, and whether it is exactly that. Values beyond int64 are not.
func wholeNumber(quantity resource.Quantity) (value int64, exact bool) {
	if quantity.CmpInt64(math.MaxInt64) > 0 || quantity.CmpInt64(math.MinInt64) < 0 {
		return 0, false
	}
	value = quantity.Value()
	return value, quantity.CmpInt64(value) == 0
}

// FormatMemory writes bytes for people: Gi with at most two decimals, rounded down so that what is said to fit fits.
func FormatMemory(bytes int64) string {
	if bytes < gibi {
		return strconv.FormatInt(bytes/mebi, 10) + "Mi"
	}
	hundredths := bytes/gibi*100 + bytes%gibi*100/gibi
	text := fmt.Sprintf("%d.%02d", hundredths/100, hundredths%100)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".") + "Gi"
}

// formatAsked writes an amount that was asked for without rounding it.
func formatAsked(memoryMi int64) string {
	return resource.NewQuantity(memoryMi*mebi, resource.BinarySI).String()
}

// say tells whether a limit says what the amounts do.
func (a Amounts) say(name corev1.ResourceName, quantity resource.Quantity) bool {
	value, exact := wholeNumber(quantity)
	if !exact {
		return false
	}
	switch name {
	case v1alpha1.ResourceGPU:
		return value == a.GPUs
	case v1alpha1.ResourceMemory:
		return value > 0 && value <= MaxMemoryMi*mebi && divideUp(value, mebi) == a.MemoryMi
	case v1alpha1.ResourceCompute:
		return value == a.Compute
	default:
		return false
	}
}

// String writes amounts as a tenant writes them.
func (a Amounts) String() string {
	parts := []string{fmt.Sprintf("%s: %d", v1alpha1.ResourceGPU, a.GPUs)}
	if a.MemoryMi > 0 {
		parts = append(parts, v1alpha1.ResourceMemory+": "+formatAsked(a.MemoryMi))
	}
	if a.Compute > 0 {
		parts = append(parts, fmt.Sprintf("%s: %d", v1alpha1.ResourceCompute, a.Compute))
	}
	return strings.Join(parts, ", ")
}
