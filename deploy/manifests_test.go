package deploy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/require"
	"github.com/yannh/kubeconform/pkg/validator"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

// manifests are the objects of one installation.
type manifests struct {
	deployments []*appsv1.Deployment
	stateful    []*appsv1.StatefulSet
	services    []*corev1.Service
	configMaps  []*corev1.ConfigMap
	accounts    []*corev1.ServiceAccount
	policies    []*networkingv1.NetworkPolicy
	budgets     []*policyv1.PodDisruptionBudget
	autoscalers []*autoscalingv2.HorizontalPodAutoscaler
	monitors    []*monitoringv1.ServiceMonitor
	rules       []*monitoringv1.PrometheusRule
}

// read reads objects, and refuses fields that their types do not have.
func read(text []byte) (*manifests, error) {
	m := new(manifests)
	for part := range bytes.SplitSeq(text, []byte("\n---\n")) {
		if len(bytes.TrimSpace(part)) == 0 {
			continue
		}
		var of struct{ APIVersion, Kind string }
		if err := yaml.Unmarshal(part, &of); err != nil {
			return nil, fmt.Errorf("%w:\n%s", err, part)
		}
		var err error
		switch of.APIVersion + " " + of.Kind {
		case "apps/v1 Deployment":
			m.deployments, err = appended(m.deployments, part)
		case "apps/v1 StatefulSet":
			m.stateful, err = appended(m.stateful, part)
		case "v1 Service":
			m.services, err = appended(m.services, part)
		case "v1 ConfigMap":
			m.configMaps, err = appended(m.configMaps, part)
		case "v1 ServiceAccount":
			m.accounts, err = appended(m.accounts, part)
		case "networking.k8s.io/v1 NetworkPolicy":
			m.policies, err = appended(m.policies, part)
		case "policy/v1 PodDisruptionBudget":
			m.budgets, err = appended(m.budgets, part)
		case "autoscaling/v2 HorizontalPodAutoscaler":
			m.autoscalers, err = appended(m.autoscalers, part)
		case "monitoring.coreos.com/v1 ServiceMonitor":
			m.monitors, err = appended(m.monitors, part)
		case "monitoring.coreos.com/v1 PrometheusRule":
			m.rules, err = appended(m.rules, part)
		default:
			err = fmt.Errorf("%s %s is no kind that is expected", of.APIVersion, of.Kind)
		}
		if err != nil {
			return nil, fmt.Errorf("%w:\n%s", err, part)
		}
	}
	return m, nil
}

func appended[T any](all []*T, text []byte) ([]*T, error) {
	one := new(T)
	err := yaml.UnmarshalStrict(text, one)
	return append(all, one), err
}

// conforms reports what kubeconform says is wrong, by the schemas of testdata. The operator's
// types are held to its own package, by read.
func conforms(t *testing.T, text []byte) (wrong []string) {
	t.Helper()
	v, err := validator.New([]string{"testdata/schemas/{{.ResourceKind}}{{.KindSuffix}}.json"}, validator.Opts{Strict: true, SkipKinds: map[string]struct{}{"ServiceMonitor": {}, "PrometheusRule": {}}})
	require.NoError(t, err)
	results := v.ValidateWithContext(context.Background(), "manifests", io.NopCloser(bytes.NewReader(text)))
	require.NotEmpty(t, results)
	for _, r := range results {
		if r.Status != validator.Valid && r.Status != validator.Skipped {
			wrong = append(wrong, fmt.Sprintf("%v\n%s", r.Err, r.Resource.Bytes))
		}
	}
	return wrong
}
