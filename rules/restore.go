package rules

// RestoreID takes an override back, on all nodes, whose key's text is not known:
// Overrides has its limit and ID. Without one it does nothing. The limit need not
// be in the file any more.
func (b *Book) RestoreID(limit string, id [16]byte) error {
	name := publishedName(limit, id)
	if values, _ := b.values.Published(name); len(values) == 0 {
		return nil
	}
	if err := b.values.Publish(name, 0, nil); err != nil {
		return err
	}
	b.refresh()
	return nil
}
