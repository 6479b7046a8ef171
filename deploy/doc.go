// Package deploy has manifests for Kubernetes, for Kustomize and for Helm, and the tests
// that hold them to each other and to the commands that they run. docs/deploy.md tells how to
// install them. The tests read the manifests of testdata/rendered. Those with the tag render
// hold these to Helm, to Kustomize and to the schemas of Kubernetes.
package deploy
