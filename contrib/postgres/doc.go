// Package pgrules reads rules from a row of a Postgres table, which all nodes share. A
// [Source] is a source of package rules:
//
//	source, err := pgrules.New(pgrules.Options{Connection: "postgres://weir@db/ops", Name: "production"})
//	...
//	book, err := rules.OpenSource(ctx, node, source, rules.BookOptions{})
//
// [Schema] creates the table. The text of the row is that of a rules file:
//
//	INSERT INTO weir_rules (name, text) VALUES ('production', '...')
//	ON CONFLICT (name) DO UPDATE SET text = EXCLUDED.text;
//
// A trigger notifies all Sources of a change, by NOTIFY. A Source listens on a single
// connection, and also queries the row at the interval Options.Poll. The query detects a dead
// connection, for which TCP alone would need minutes. It also finds changes without a
// notification: those behind a pooler, on a standby, or by logical replication.
package pgrules
