CREATE TABLE IF NOT EXISTS weir_rules (
	name     text   PRIMARY KEY,
	text     text   NOT NULL CHECK (octet_length(text) <= 1048576),
	revision bigint NOT NULL DEFAULT 1
);

CREATE OR REPLACE FUNCTION weir_rules_revise() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	NEW.revision := OLD.revision + 1;
	RETURN NEW;
END $$;

CREATE OR REPLACE FUNCTION weir_rules_notify() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	NOTIFY weir_rules;
	RETURN NULL;
END $$;

DROP TRIGGER IF EXISTS weir_rules_revise ON weir_rules;
CREATE TRIGGER weir_rules_revise BEFORE UPDATE ON weir_rules
	FOR EACH ROW EXECUTE FUNCTION weir_rules_revise();

DROP TRIGGER IF EXISTS weir_rules_notify ON weir_rules;
CREATE TRIGGER weir_rules_notify AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON weir_rules
	FOR EACH STATEMENT EXECUTE FUNCTION weir_rules_notify();
