package snippets

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Command is a program and its arguments, from a fence of sh, from a line of a
// fence of console that begins with "$ ", or from code within a line that begins
// with a program that documents call.
type Command struct {
	File   string // slash-separated, from the project's root
	Line   int    // from 1
	Words  []string
	Output string // of console: what follows the command
}

// Position returns where the command is, as "file:line".
func (c *Command) Position() string { return fmt.Sprintf("%s:%d", c.File, c.Line) }

// called is code within a line that calls a program.
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

// CallsOf returns the commands that begin with these words, without them: their
// Words are the arguments.
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

// After returns the words that follow these, if the command begins with them.
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
			add(s.Line, strings.ReplaceAll(s.Text, `\|`, "|"), "") // in a table a bar is written so
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

// prompted is a command after a prompt, up to the first end of a line outside quotes, and its output.
var prompted = regexp.MustCompile(`(?s)^((?:'[^']*'|"[^"]*"|[^'"\n])*)\n?(.*)$`)

// token is the first of a shell's tokens in a text: blanks or a comment, the end of a
// command, an output's redirection, or a word.
var token = regexp.MustCompile(`(?s)^(?:[ \t]+|\\\n|#[^\n]*|([;|&\n])|(>)|((?:\\.|'[^']*'|"(?:\\.|[^"\\])*"|[^\s;|&<>(){}'"\\])+))`)

var (
	quoted       = regexp.MustCompile(`(?s)\\.|'[^']*'|"(?:\\.|[^"\\])*"`)
	escape       = regexp.MustCompile(`(?s)\\\n|\\(.)`)
	substitution = regexp.MustCompile("`|\\$\\(")
	environment  = regexp.MustCompile(`^(time$|[A-Za-z_]\w*=)`)
)

// split takes a text of the shell into commands, without what stands around a program:
// time, its environment, an output's redirection. It is no shell, and refuses what it does
// not know: a substitution, a loop, an input's redirection.
func split(text string) (commands [][]string, err error) {
	var words []string
	redirected := false
	for text += "\n"; text != ""; {
		found := token.FindStringSubmatch(text)
		if found == nil {
			return nil, fmt.Errorf("%q: end the quote, or put it in quotes if it is no shell's", text)
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
			return nil, errors.New("a substitution: write what it stands for")
		default:
			words = append(words, unquote(word))
		}
	}
	return commands, nil
}

// unquote returns what a word is to a program.
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
