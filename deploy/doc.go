// Package deploy contains manifests for Kubernetes, Kustomize and Helm. Its tests compare
// the manifests with each other and with the commands that they run. docs/deploy.md
// describes the installation. The tests read the manifests of testdata/rendered. The
// tests with the tag render compare these with Helm, Kustomize and the schemas of
// Kubernetes.
package deploy
