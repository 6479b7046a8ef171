package cluster

import "github.com/hashicorp/go-msgpack/v2/codec"

// encode writes a struct of this package's wire formats. They have no field
// that MessagePack cannot hold, so that nothing can go wrong.
func encode(v any) []byte {
	var b []byte
	codec.NewEncoderBytes(&b, new(codec.MsgpackHandle)).MustEncode(v)
	return b
}

// decode reads what may be anybody's bytes.
func decode(b []byte, v any) error {
	return codec.NewDecoderBytes(b, new(codec.MsgpackHandle)).Decode(v)
}
