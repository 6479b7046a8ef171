package snippets

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Command is a program and its arguments, from a fence of sh, from a line of a
// fence of console that begins with "$ ", or from a code span that calls go, make,
// curl or weir.
type Command struct {
	File   string // slash-separated, from the root of the project
	Line   int    // from 1
	Words  []string
	Output string // in a fence of console, the text up to the next command
}

// Position returns the position of the command, as "file:line".
func (c *Command) Position() string { return fmt.Sprintf("%s:%d", c.File, c.Line) }

// called matches a code span that calls a program.
var called = regexp.MustCompile(`^(time |[A-Z_]+=\S+ )*(go|make|curl|weir) `)

// Commands returns every command of every document of the project.
func Commands() (all []Command, err error) {
	docs, err := documents()
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, d := range docs {
		commands, err := d.commands()
		all, errs = append(all, commands...), append(errs, err)
	}
	return all, errors.Join(errs...)
}

// CallsOf returns the commands that begin with the given words. Their Words are the remaining words,
// the arguments.
func CallsOf(words ...string) (calls []Command, err error) {
	all, err := Commands()
	for _, c := range all {
		if rest, ok := c.After(words...); ok {
			c.Words = rest
			calls = append(calls, c)
		}
	}
	return calls, err
}

// After returns the words of the command after the given words. ok is false if the command does not begin
// with the given words.
func (c *Command) After(words ...string) (rest []string, ok bool) {
	if len(c.Words) < len(words) || !slices.Equal(c.Words[:len(words)], words) {
		return nil, false
	}
	return c.Words[len(words):], true
}

func (d *document) commands() (all []Command, err error) {
	var errs []error
	add := func(line int, text, output string) {
		calls, err := split(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s:%d: %q: %w", d.file, line, text, err))
		}
		for _, words := range calls {
			all = append(all, Command{d.file, line, words, output})
		}
	}
	for _, s := range d.inline() {
		if called.MatchString(s.Text) {
			add(s.Line, strings.ReplaceAll(s.Text, `\|`, "|"), "") // a table has \| for a bar
		}
	}
	for _, s := range d.snippets() {
		switch s.Language {
		case "sh":
			add(s.Line, s.Text, "")
		case "console":
			for _, part := range regexp.MustCompile(`(?m)^\$ `).Split(s.Text, -1)[1:] {
				found := prompted.FindStringSubmatch(part)
				add(s.Line, found[1], found[2])
			}
		}
	}
	return all, errors.Join(errs...)
}

// prompted matches a command after a prompt, up to the first end of a line outside quotes, and the
// output of the command.
var prompted = regexp.MustCompile(`(?s)^((?:'[^']*'|"[^"]*"|[^'"\n])*)\n?(.*)$`)

// token matches the first token of a shell text: blanks or a comment, the end of a command, the
// redirection of an output, or a word.
var token = regexp.MustCompile(`(?s)^(?:[ \t]+|\\\n|#[^\n]*|([;|&\n])|(>)|((?:\\.|'[^']*'|"(?:\\.|[^"\\])*"|[^\s;|&<>(){}'"\\])+))`)

var (
	quoted       = regexp.MustCompile(`(?s)\\.|'[^']*'|"(?:\\.|[^"\\])*"`)
	escape       = regexp.MustCompile(`(?s)\\\n|\\(.)`)
	substitution = regexp.MustCompile("`|\\$\\(")
	environment  = regexp.MustCompile(`^(time$|[A-Za-z_]\w*=)`)
)

// split splits a shell text into commands, without time, the environment of a program, and the
// redirection of an output. It returns an error for a substitution, for a quote that is not closed, and
// for < ( ) { } outside quotes.
func split(text string) (commands [][]string, err error) {
	var words []string
	redirected := false
	for text += "\n"; text != ""; {
		found := token.FindStringSubmatch(text)
		if found == nil {
			return nil, fmt.Errorf("%q: close the quote, or put < ( ) { } in quotes", text)
		}
		text = text[len(found[0]):]
		switch ends, redirects, word := found[1], found[2], found[3]; {
		case ends != "":
			if len(words) > 0 {
				commands = append(commands, words)
			}
			words = nil
		case redirects != "":
			redirected = true
		case word == "" || len(words) == 0 && environment.MatchString(word):
		case redirected:
			redirected = false
		case word[0] != '\'' && substitution.MatchString(word):
			return nil, errors.New("the command has a substitution: write what it stands for")
		default:
			words = append(words, unquote(word))
		}
	}
	return commands, nil
}

// unquote returns a word without its quotes and escapes, as a program receives it.
func unquote(word string) string {
	return quoted.ReplaceAllStringFunc(word, func(part string) string {
		switch part[0] {
		case '\'':
			return part[1 : len(part)-1]
		case '"':
			part = part[1 : len(part)-1]
		}
		return escape.ReplaceAllString(part, "$1")
	})
}
