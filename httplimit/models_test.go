package httplimit

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

// sse returns a stream of events with the given data.
func sse(data ...string) string { return "data: " + strings.Join(data, "\n\ndata: ") + "\n\n" }

// A single rule works for the response formats of several model providers, both for a complete
// response and for a response that arrives byte by byte.
func TestRuleSettlesResponsesOfModelProviders(t *testing.T) {
	const (
		start     = `{"type":"message_start","message":{"id":"m","usage":{"input_tokens":25,CACHE"output_tokens":1}}}`
		delta     = `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\"usage\":{\"total_tokens\":9}"}}`
		anthropic = `{"id":"m","type":"message","content":[{"type":"text","text":"hi"}],"usage":{"input_tokens":25,CACHE"output_tokens":15}}`
		chunk     = `{"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"hi"}}],"usage":null}`
		partial   = `{"candidates":[{"content":{"parts":[{"text":"a"}]}}],"usageMetadata":{"promptTokenCount":10,"totalTokenCount":10}}`
		last      = `{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":20,"thoughtsTokenCount":5,"totalTokenCount":35}}`
	)
	with := func(text, cache string) string { return strings.ReplaceAll(text, "CACHE", cache) }
	const both, one, null = `"cache_creation_input_tokens":100,"cache_read_input_tokens":50,`, `"cache_read_input_tokens":50,`, `"cache_creation_input_tokens":null,"cache_read_input_tokens":null,`
	text, err := os.ReadFile("../rules/examples/models.yaml")
	require.NoError(t, err)
	for _, c := range []struct {
		about, mediaType, body string
		want                   int64
	}{
		{"OpenAI chat completions", "application/json", `{"id":"c","choices":[],"usage":{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29,"prompt_tokens_details":{"cached_tokens":8}}}`, 29},
		{"OpenAI chat completions, streamed", "text/event-stream", sse(chunk, `{"choices":[],"usage":{"prompt_tokens":19,"completion_tokens":10,"total_tokens":29}}`, "[DONE]"), 29},
		{"OpenAI responses", "application/json", `{"id":"r","object":"response","output":[],"usage":{"input_tokens":36,"input_tokens_details":{"cached_tokens":0},"output_tokens":87,"total_tokens":123}}`, 123},
		{"OpenAI responses, streamed", "text/event-stream; charset=utf-8", "event: response.created\n" + sse(`{"type":"response.created","response":{"id":"r","usage":null}}`, `{"type":"response.completed","response":{"id":"r","usage":{"input_tokens":36,"output_tokens":87,"total_tokens":123}}}`), 123},
		{"Anthropic messages", "application/json", with(anthropic, ""), 40},
		{"Anthropic messages, both caches", "application/json", with(anthropic, both), 190},
		{"Anthropic messages, one cache", "application/json", with(anthropic, one), 90},
		{"Anthropic messages, null caches", "application/json", with(anthropic, null), 40},
		{"Anthropic messages, streamed", "text/event-stream", sse(with(start, ""), delta, `{"type":"message_delta","usage":{"output_tokens":7}}`, `{"type":"message_delta","usage":{"output_tokens":15}}`, `{"type":"message_stop"}`), 40},
		{"Anthropic messages, streamed, caches", "text/event-stream", sse(with(start, both), delta, `{"type":"message_delta","usage":{"output_tokens":15}}`), 190},
		{"Anthropic messages, streamed, null caches", "text/event-stream", sse(with(start, null), delta, `{"type":"message_delta","usage":{"output_tokens":15}}`), 40},
		{"Anthropic messages, streamed, server tools", "text/event-stream", sse(with(start, both), `{"type":"message_delta","usage":{"input_tokens":1025,"cache_creation_input_tokens":100,"cache_read_input_tokens":50,"output_tokens":15}}`), 1190},
		{"Gemini", "application/json; charset=UTF-8", last, 35},
		{"Gemini, a list", "application/json; charset=UTF-8", "[" + partial + "\n,\r\n" + last + "\n]", 35},
		{"Gemini, streamed", "text/event-stream", sse(partial, last), 35},
		{"no usage", "application/json", `{"choices":[]}`, 4000},
		{"no output", "application/json", `{"usage":{"input_tokens":25,"cache_read_input_tokens":50}}`, 4000},
		{"a stream that breaks off", "text/event-stream", sse(with(start, both), delta), 4000},
	} {
		t.Run(c.about, func(t *testing.T) {
			for _, parts := range [][]string{{c.body}, strings.Split(c.body, "")} {
				m := newLimiter(t, string(text), Options{APIKey: BearerToken}, weir.Config{})
				w := answer(m.Handler(reply(200, []string{"Content-Type", c.mediaType}, parts...)), post("{}", "Authorization", "Bearer k"))
				require.Equal(t, 200, w.Code)
				require.Equal(t, c.body, w.Body.String())
				require.Equal(t, 100000-c.want, remaining(t, m, "tokens", "k"))
				require.Equal(t, c.want == 4000, m.Unsettled() == 1)
			}
		})
	}
}
