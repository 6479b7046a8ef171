// Package etcdrules reads rules from a key of etcd, which all nodes share. A [Source] is a
// source of package rules:
//
//	source, err := etcdrules.New(etcdrules.Options{
//		Client: clientv3.Config{Endpoints: []string{"https://etcd-1:2379", "https://etcd-2:2379"}},
//		Key:    "/weir/production",
//	})
//	...
//	book, err := rules.OpenSource(ctx, node, source, rules.BookOptions{})
//
// The value of the key is the text of a rules file: etcdctl put /weir/production <rules.yaml.
//
// A Source watches the key from the revision that it has read, and also reads the key at the
// interval Options.Poll. These reads detect a dead connection, and a member of etcd that is
// cut off from its leader. After an error, the Source connects again, to any of the
// endpoints. A compaction of the revisions loses no change. The version of a text is its hash
// and not a revision, because a restored backup repeats revisions.
package etcdrules
