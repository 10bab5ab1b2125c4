// SPDX-License-Identifier: Apache-2.0

// Package certs gives the webhook server its certificate. cert-controller makes it and keeps it in a Secret; this
// package writes it from there to the directory that the webhook server reads. Without the detour through a mounted
// volume a renewed certificate is served at once, and a manager outside of a cluster works in the same way.
package certs

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/open-policy-agent/cert-controller/pkg/rotator"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/sluice-gpu/sluice/api/v1alpha1"
)

// +kubebuilder:rbac:groups="",namespace=sluice-system,resources=secrets,verbs=get;list;watch;create;update
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations;validatingwebhookconfigurations,verbs=get;list;watch
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations,resourceNames=sluice-webhook,verbs=update
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations,resourceNames=sluice-quota,verbs=update

const (
	// SecretName is the Secret that holds the webhook's certificates, in the manager's namespace.
	SecretName = "sluice-webhook-cert" //nolint:gosec // the name of a Secret, not what is in it
	// WebhookName is the MutatingWebhookConfiguration, and the Service that it calls.
	WebhookName = "sluice-webhook"
	// QuotaWebhookName is the ValidatingWebhookConfiguration of quotas, which calls the same Service.
	QuotaWebhookName = "sluice-quota"

	certFile = "tls.crt"
	keyFile  = "tls.key"
	caFile   = "ca.crt"
)

// Options say where certificates come from and go to.
type Options struct {
	// Namespace is the manager's.
	Namespace string
	// Dir is where the webhook server reads its certificate.
	Dir string
	// DNSNames are further names that the certificate is for.
	DNSNames []string
}

// Setup makes the certificate, renews it, and tells the API server to trust it. The channel is closed when all that is
// done for the first time.
func Setup(ctx context.Context, mgr ctrl.Manager, o Options) (<-chan struct{}, error) {
	if err := ensureSecret(ctx, mgr.GetAPIReader(), mgr.GetClient(), o.Namespace); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the webhook's certificate directory: %w", err)
	}
	w := &writer{client: mgr.GetClient(), dir: o.Dir}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("webhook-certificate").
		For(&corev1.Secret{}). // the cache holds this one Secret only
		WithOptions(controller.Options{NeedLeaderElection: ptr.To(false)}).
		Complete(w)
	if err != nil {
		return nil, fmt.Errorf("setting up the webhook's certificate: %w", err)
	}
	ready := make(chan struct{})
	err = rotator.AddRotator(mgr, &rotator.CertRotator{
		SecretKey:      client.ObjectKey{Namespace: o.Namespace, Name: SecretName},
		CertDir:        o.Dir,
		CertName:       certFile,
		KeyName:        keyFile,
		CAName:         "sluice-webhook-ca",
		CAOrganization: "sluice",
		DNSName:        DNSName(o.Namespace),
		ExtraDNSNames:  o.DNSNames,
		IsReady:        ready,
		ExtKeyUsages:   &[]x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, // replicas call each other
		Webhooks: []rotator.WebhookInfo{
			{Name: WebhookName, Type: rotator.Mutating}, {Name: QuotaWebhookName, Type: rotator.Validating},
		},
		FieldOwner:           "sluice-manager",
		EnableReadinessCheck: true,
	})
	if err != nil {
		return nil, fmt.Errorf("setting up the rotation of the webhook's certificate: %w", err)
	}
	return ready, nil
}

// DNSName is the name by which the API server calls the webhooks.
func DNSName(namespace string) string { return WebhookName + "." + namespace + ".svc" }

// ensureSecret creates the Secret that cert-controller fills; it only updates one that exists.
func ensureSecret(ctx context.Context, reader client.Reader, c client.Client, namespace string) error {
	key := client.ObjectKey{Namespace: namespace, Name: SecretName}
	err := reader.Get(ctx, key, &corev1.Secret{})
	if !apierrors.IsNotFound(err) {
		if err != nil {
			return fmt.Errorf("reading secret %s: %w", key, err)
		}
		return nil
	}
	err = c.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: SecretName, Labels: map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue},
	}})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating secret %s: %w", key, err)
	}
	return nil
}

// writer copies the certificate, and its authority's, from the Secret to the directory. The authority's key stays in the
// Secret.
type writer struct {
	client client.Client
	dir    string
}

// Reconcile writes the certificate that the Secret holds.
func (w *writer) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	secret := &corev1.Secret{}
	if err := w.client.Get(ctx, request.NamespacedName, secret); err != nil {
		if apierrors.IsNotFound(err) {
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("reading secret %s: %w", request.NamespacedName, err)
	}
	if len(secret.Data[certFile]) == 0 || len(secret.Data[keyFile]) == 0 {
		return ctrl.Result{}, nil // not made yet
	}
	// The key first: the webhook server waits for a pair that fits, and the certificate's file says that it is there.
	return ctrl.Result{}, errors.Join(
		replace(filepath.Join(w.dir, caFile), secret.Data[caFile]),
		replace(filepath.Join(w.dir, keyFile), secret.Data[keyFile]),
		replace(filepath.Join(w.dir, certFile), secret.Data[certFile]),
	)
}

// replace writes a file in one step, so that nobody reads half of it.
func replace(path string, data []byte) error {
	temporary, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	_, err = temporary.Write(data)
	err = errors.Join(err, temporary.Close())
	if err == nil {
		err = os.Rename(temporary.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, errors.Join(err, os.Remove(temporary.Name())))
	}
	return nil
}
