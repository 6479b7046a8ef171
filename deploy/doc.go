// Package deploy has manifests for Kubernetes, for Kustomize and for Helm, and the tests
// that hold them to the schemas of Kubernetes, to each other and to the commands that they
// run. docs/deploy.md says how to install them. The tests read the manifests of
// testdata/rendered; those with the tag render hold these to Helm and Kustomize.
package deploy
