// SPDX-License-Identifier: Apache-2.0

package template

import (
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
	"github.com/sluice-gpu/sluice/internal/request"
)

// references are the pods that carry a template's hash. The annotation is the tenant's to write, so each is judged.
type references struct {
	// canonical is the request of that hash, and encoded its text; nil where no pod carries it.
	canonical *request.Canonical
	encoded   string
	// valid are the pods that carry it.
	valid []*metav1.PartialObjectMetadata
	// invalid are those that carry something else, with what is wrong.
	invalid []invalidPod
}

type invalidPod struct {
	pod *metav1.PartialObjectMetadata
	why error
}

// judge reads the annotations of the pods that carry a hash.
func judge(hash string, pods []metav1.PartialObjectMetadata) references {
	var found references
	for i := range pods {
		pod := &pods[i]
		encoded := pod.Annotations[v1alpha1.RequestAnnotation]
		if found.canonical != nil && encoded == found.encoded {
			found.valid = append(found.valid, pod)
			continue
		}
		canonical, err := read(hash, encoded)
		if err != nil {
			found.invalid = append(found.invalid, invalidPod{pod: pod, why: err})
			continue
		}
		found.canonical, found.encoded = &canonical, encoded
		found.valid = append(found.valid, pod)
	}
	return found
}

// read decodes an annotation whose hash must be the one in the label.
func read(hash, encoded string) (request.Canonical, error) {
	if encoded == "" {
		return request.Canonical{}, errors.New("the annotation is missing")
	}
	canonical, err := request.Decode(encoded)
	if err != nil {
		return request.Canonical{}, err
	}
	if request.Hash(encoded) != hash {
		return request.Canonical{}, errors.New("the label's hash is not that of the annotation")
	}
	return canonical, nil
}
