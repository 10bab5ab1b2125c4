// SPDX-License-Identifier: Apache-2.0

// The manager decides which pool holds each GPU, keeps the device classes, sums up the pools, and answers admission.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // schedules name time zones, and an image need not have the data base

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/sluice-gpu/sluice/controllers"
	"github.com/sluice-gpu/sluice/controllers/uninstall"
)

// config is the command line.
type config struct {
	leaderElect       bool
	metricsAddress    string
	healthAddress     string
	webhookPort       int
	webhookCertDir    string
	webhookDNSNames   string
	certRotation      bool
	address           string
	namespace         string
	extendedResources bool
	drainSettle       time.Duration
	scheduleJitter    time.Duration
	qps               float64
	burst             int
	logging           zap.Options
}

func (c *config) bind(flags *flag.FlagSet) {
	flags.BoolVar(&c.leaderElect, "leader-elect", true, "let one replica at a time act; all answer admission")
	flags.StringVar(&c.metricsAddress, "metrics-bind-address", ":8080", "address of the metrics endpoint; 0 turns it off")
	flags.StringVar(&c.healthAddress, "health-probe-bind-address", ":8081", "address of /healthz and /readyz; 0 turns them off")
	flags.IntVar(&c.webhookPort, "webhook-port", 9443, "port of the admission webhook")
	flags.StringVar(&c.webhookCertDir, "webhook-cert-dir", filepath.Join(os.TempDir(), "sluice-webhook"),
		"directory of the webhook's certificate, tls.crt and tls.key; written by the manager where it rotates certificates")
	flags.StringVar(&c.webhookDNSNames, "webhook-dns-names", "",
		"further DNS names of the webhook's certificate, separated by commas, for an API server that reaches it by another name than its service's")
	flags.BoolVar(&c.certRotation, "cert-rotation", true,
		"make and renew the webhook's certificate; false where something else writes --webhook-cert-dir and the webhook's caBundle")
	flags.StringVar(&c.address, "advertise-address", "",
		"host and port at which the other replicas reach this one's webhook server; by default $POD_IP and the webhook's port, "+
			"and where that is not set every replica writes the ledgers of quotas by itself")
	flags.StringVar(&c.namespace, "namespace", os.Getenv("POD_NAMESPACE"),
		"namespace of the manager's lease and certificate; by default $POD_NAMESPACE")
	flags.BoolVar(&c.extendedResources, "extended-resources", true,
		"give device classes the extended resource names nvidia.com/gpu and nvidia.com/mig-<profile>")
	flags.DurationVar(&c.drainSettle, "drain-settle", 10*time.Second,
		"how long a GPU's published taint must stand before it changes hands, so that no allocation is on its way")
	flags.DurationVar(&c.scheduleJitter, "schedule-jitter", time.Minute,
		"how long the nodes of a pool take to follow a change of its schedule, one after the other")
	flags.Float64Var(&c.qps, "kube-api-qps", 200, "requests a second to the API server")
	flags.IntVar(&c.burst, "kube-api-burst", 400, "requests to the API server at once")
	c.logging.BindFlags(flags)
}

func (c *config) check() error {
	switch {
	case c.namespace == "":
		return fmt.Errorf("--namespace is not given and POD_NAMESPACE is not set")
	case c.drainSettle < 0:
		return fmt.Errorf("--drain-settle is negative: %s", c.drainSettle)
	case c.scheduleJitter < 0:
		return fmt.Errorf("--schedule-jitter is negative: %s", c.scheduleJitter)
	case c.qps <= 0 || c.burst <= 0:
		return fmt.Errorf("--kube-api-qps and --kube-api-burst must be positive")
	default:
		return nil
	}
}

// advertised is where other replicas reach this one; "" where that is not known.
func (c *config) advertised() string {
	if ip := os.Getenv("POD_IP"); c.address == "" && ip != "" {
		return net.JoinHostPort(ip, strconv.Itoa(c.webhookPort))
	}
	return c.address
}

func (c *config) dnsNames() []string {
	return strings.FieldsFunc(c.webhookDNSNames, func(r rune) bool { return r == ',' })
}

func main() {
	var c config
	var away uninstall.Options
	args := os.Args[1:]
	leaves := len(args) > 0 && args[0] == uninstallCommand
	if leaves { // --kubeconfig is there already
		bindUninstall(flag.CommandLine, &away)
		c.logging.BindFlags(flag.CommandLine)
		args = args[1:]
	} else {
		c.bind(flag.CommandLine)
	}
	_ = flag.CommandLine.Parse(args) // it ends the program itself
	logger := zap.New(zap.UseFlagOptions(&c.logging))
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	ctx := ctrl.SetupSignalHandler()
	var err error
	if leaves {
		err = runUninstall(ctx, away, logger)
	} else {
		err = run(ctx, c)
	}
	if err != nil {
		logger.Error(err, "The manager ends")
		os.Exit(1)
	}
}

// run builds everything and serves until the context ends.
func run(ctx context.Context, c config) error {
	if err := c.check(); err != nil {
		return err
	}
	mgr, err := newManager(c)
	if err != nil {
		return err
	}
	options, err := optionsOf(mgr, c)
	if err != nil {
		return err
	}
	if err := controllers.SetupAll(ctx, mgr, options); err != nil {
		return fmt.Errorf("setting up the controllers: %w", err)
	}
	if err := serveWebhooks(ctx, mgr, c, options); err != nil {
		return err
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running the controllers: %w", err)
	}
	return nil
}
