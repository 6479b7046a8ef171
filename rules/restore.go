package rules

// RestoreID deletes an override on all nodes, by the limit and the ID in Overrides, if the text
// of the key is unknown. Without an override, RestoreID does nothing. The limit need not be in the
// file any more. The error is that of weir.Node.Publish.
func (b *Book) RestoreID(limit string, id [16]byte) error {
	return b.withdraw(publishedName(limit, id))
}
