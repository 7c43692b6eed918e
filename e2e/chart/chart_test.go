//go:build e2e

// Package chart_test renders the Helm chart with Helm's own packages and decodes each object strictly as
// Kubernetes' own types do.
package chart_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"

	"github.com/playhead/playhead/e2e/pipeline"
)

func load(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.Load("../../deploy/helm/playhead")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// objects are the rendered objects by kind and name.
type objects map[string]any

// kinds are the types of Kubernetes. Others are of operators, and only parsed.
var kinds = map[string]func() any{
	"ConfigMap": func() any { return new(corev1.ConfigMap) }, "Service": func() any { return new(corev1.Service) },
	"StatefulSet": func() any { return new(appsv1.StatefulSet) }, "Deployment": func() any { return new(appsv1.Deployment) },
	"PodDisruptionBudget":     func() any { return new(policyv1.PodDisruptionBudget) },
	"HorizontalPodAutoscaler": func() any { return new(autoscalingv2.HorizontalPodAutoscaler) },
	"NetworkPolicy":           func() any { return new(networkingv1.NetworkPolicy) }, "Ingress": func() any { return new(networkingv1.Ingress) },
}

var operators = []string{"ServiceMonitor", "PrometheusRule", "ScaledObject"}

// render returns the objects for values in YAML.
func render(t *testing.T, values string) (objects, error) {
	t.Helper()
	v, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		t.Fatal(err)
	}
	all, err := chartutil.ToRenderValues(load(t), v, chartutil.ReleaseOptions{Name: "ph", Namespace: "tv", IsInstall: true}, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Engine{Strict: true}.Render(load(t), all)
	if err != nil {
		return nil, err
	}
	made := make(objects)
	for name, text := range files {
		if !strings.HasSuffix(name, ".yaml") {
			continue
		}
		for one := range strings.SplitSeq(text, "\n---\n") {
			if err := made.add(one); err != nil {
				return nil, fmt.Errorf("%s: %w\n%s", name, err, one)
			}
		}
	}
	return made, nil
}

func (o objects) add(text string) error {
	var head struct {
		Kind     string
		Metadata struct{ Name, Namespace string }
	}
	if err := yaml.Unmarshal([]byte(text), &head); err != nil {
		return err
	}
	switch kind := kinds[head.Kind]; {
	case strings.Trim(text, "- \n") == "":
		return nil
	case head.Metadata.Namespace != "tv":
		return fmt.Errorf("namespace %q", head.Metadata.Namespace)
	case kind != nil:
		object := kind()
		o[head.Kind+" "+head.Metadata.Name] = object
		return yaml.UnmarshalStrict([]byte(text), object)
	case slices.Contains(operators, head.Kind):
		o[head.Kind+" "+head.Metadata.Name] = text
		return nil
	}
	return fmt.Errorf("unknown kind %q", head.Kind)
}

const everything = `
secrets: [token]
service: {autoscaling: {min: 2, max: 5, cpu: 60}, config: {tls-cert: /etc/playhead/secrets/token/tls.crt, hold: 1m}}
edge: {autoscaling: {min: 2, max: 5, cpu: 60}, config: {token-secret-file: /etc/playhead/secrets/token/secret, host: [a.example.com]}}
job: {keda: {min: 1, max: 16, lag: 500}}
serve: {config: {token-secret-file: /etc/playhead/secrets/token/secret}, storage: {size: 5Gi, className: fast}}
ingress: {className: nginx, host: history.example.com, tlsSecret: tls}
serviceMonitor: {enabled: true}
prometheusRule: {enabled: true}
dashboards: {enabled: true}
podAnnotations: {team: tv}
nodeSelector: {disk: ssd}
tolerations: [{key: a, operator: Exists}]
imagePullSecrets: [{name: pull}]
mode: `

func TestObjects(t *testing.T) {
	bin := pipeline.Build(t, "bff", "history-service", "history-job", "playhead")
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	observed := []string{"ConfigMap ph-observe-dashboards", "PrometheusRule ph-observe", "ServiceMonitor ph-observe"}
	for name, tt := range map[string]struct {
		values string
		want   []string
	}{
		"by default": {"", []string{"ConfigMap ph-serve", "NetworkPolicy ph-serve", "Service ph-serve", "StatefulSet ph-serve"}},
		"serve with everything": {everything + "serve", append([]string{
			"ConfigMap ph-serve", "Ingress ph-serve", "NetworkPolicy ph-serve", "Service ph-serve", "StatefulSet ph-serve",
		}, observed...)},
		"services": {"mode: services", services()},
		"services with everything": {everything + "services", append(services(
			"HorizontalPodAutoscaler ph-edge", "HorizontalPodAutoscaler ph-service", "ScaledObject ph-job", "Ingress ph-edge"), observed...)},
	} {
		t.Run(name, func(t *testing.T) {
			made, err := render(t, tt.values)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for key := range made {
				got = append(got, key)
			}
			slices.Sort(got)
			slices.Sort(tt.want)
			if !slices.Equal(got, tt.want) {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
			for key, o := range made {
				switch o := o.(type) {
				case *appsv1.Deployment:
					checkPod(t, key, &o.Spec.Template.Spec, made)
				case *appsv1.StatefulSet:
					checkPod(t, key, &o.Spec.Template.Spec, made)
				}
			}
		})
	}
}

func services(more ...string) []string {
	for _, name := range []string{"edge", "service", "job"} {
		for _, kind := range []string{"ConfigMap", "Deployment", "NetworkPolicy", "PodDisruptionBudget", "Service"} {
			more = append(more, kind+" ph-"+name)
		}
	}
	return more
}

// checkPod holds a pod against the pod security standard "restricted", and its arguments and settings against
// the command itself.
func checkPod(t *testing.T, key string, pod *corev1.PodSpec, made objects) {
	t.Helper()
	c := pod.Containers[0]
	s, p := c.SecurityContext, pod.SecurityContext
	if !*p.RunAsNonRoot || p.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem ||
		!slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || *pod.AutomountServiceAccountToken {
		t.Errorf("%s: security %+v %+v", key, p, s)
	}
	name := strings.Fields(key)[1]
	config := made["ConfigMap "+name].(*corev1.ConfigMap).Data["config.yaml"]
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	command := c.Image[strings.LastIndex(c.Image, "/")+1 : strings.LastIndex(c.Image, ":")]
	args := slices.Clone(c.Args)
	for i, arg := range args {
		if strings.HasPrefix(arg, "--config=") {
			args[i] = "--config=" + file
		}
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), command, append(args, "--print-config")...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Errorf("%s %q with\n%s\n%v\n%s", command, args, config, err, &out)
	}
	for _, want := range []string{"log-format: json", name + ".tv.svc"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s: no %q in the settings\n%s", key, want, &out)
		}
	}
}

// TestLint is helm lint. It recommends an icon, and finds nothing else.
func TestLint(t *testing.T) {
	for _, values := range []string{"", everything + "serve", everything + "services"} {
		v, err := chartutil.ReadValues([]byte(values))
		if err != nil {
			t.Fatal(err)
		}
		found := lint.All("../../deploy/helm/playhead", v, "tv", true).Messages
		if len(found) != 1 || !strings.Contains(found[0].Error(), "icon is recommended") {
			t.Errorf("%q: got %v, want that an icon is recommended", values, found)
		}
	}
}

// TestStrict: an unknown field and a wrong type are no object of Kubernetes.
func TestStrict(t *testing.T) {
	for spec, want := range map[string]string{
		"{ports: [{port: 80}]}":     "",
		"{prots: [{port: 80}]}":     `unknown field "prots"`,
		"{ports: [{port: eighty}]}": "cannot unmarshal string",
		"{ports: {port: 80}}":       "cannot unmarshal object",
		"{ports: [], ports: []}":    `key "ports" already set`,
	} {
		err := make(objects).add("{kind: Service, metadata: {name: a, namespace: tv}, spec: " + spec + "}")
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", spec, err, want)
		}
	}
}

// TestRefused: a wrong value is an error of the schema, which names it.
func TestRefused(t *testing.T) {
	for values, want := range map[string]string{
		"mode: both":                         "mode",
		"edge: {replicas: 0}":                "replicas",
		"edge: {config: {listen: ':80'}}":    "config",
		"replicas: 3":                        "replicas",
		"job: {keda: {min: 1, max: 2}}":      "lag",
		"service: {autoscaling: {min: two}}": "autoscaling",
	} {
		if _, err := render(t, values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q named", values, err, want)
		}
	}
}
