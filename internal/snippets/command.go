package snippets

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Command is a program and its arguments, from a fence of sh, from a line of a
// fence of console that begins with "$ ", or from code within a line that begins
// with one of the programs that documents call.
type Command struct {
	File   string // slash-separated, from the project's root
	Line   int    // from 1
	Words  []string
	Output string // of console: what follows the command
}

// At returns where the command is, as "file:line".
func (c *Command) At() string { return fmt.Sprintf("%s:%d", c.File, c.Line) }

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
	if len(c.Words) < len(words) {
		return nil, false
	}
	for i, w := range words {
		if c.Words[i] != w {
			return nil, false
		}
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
				command, output := cutCommand(part)
				add(s.Line, command, output)
			}
		}
	}
	return all, errors.Join(errs...)
}

// cutCommand splits what follows a prompt at the first end of a line that is not
// within quotes.
func cutCommand(text string) (command, output string) {
	var quote rune
	for i, c := range text {
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case c == '\n':
			return text[:i], text[i+1:]
		}
	}
	return text, ""
}

// assignment is what stands before a program for its environment.
var assignment = regexp.MustCompile(`^[A-Za-z_]\w*=`)

// split takes a text of the shell into commands: quotes, \, comments, ;, |, && and
// || are understood, and what stands around a program is left out: time, its
// environment, an output's redirection. It is no shell, and
// refuses what it does not know: a substitution, a loop, an input's redirection.
func split(text string) (commands [][]string, err error) {
	var words []string
	var word strings.Builder
	begun, redirected := false, false
	end := func() {
		if begun && !redirected && !(len(words) == 0 && assignment.MatchString(word.String())) {
			words = append(words, word.String())
		}
		if begun {
			redirected = false
		}
		word.Reset()
		begun = false
	}
	next := func() {
		end()
		if len(words) > 0 && words[0] == "time" {
			words = words[1:]
		}
		if len(words) > 0 {
			commands = append(commands, words)
		}
		words = nil
	}
	var quote byte
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote == '\'':
			word.WriteByte(c)
		case c == '`' || c == '$' && i+1 < len(text) && text[i+1] == '(':
			return nil, errors.New("a substitution: write what it stands for")
		case c == '\\' && i+1 < len(text):
			if i++; text[i] != '\n' {
				begun = true
				word.WriteByte(text[i])
			}
		case quote != 0:
			word.WriteByte(c)
		case c == '\'' || c == '"':
			quote, begun = c, true
		case c == ' ' || c == '\t':
			end()
		case c == '#' && !begun:
			for i+1 < len(text) && text[i+1] != '\n' {
				i++
			}
		case c == '\n' || c == ';' || c == '|' || c == '&':
			next()
		case c == '>':
			end()
			redirected = true
		case c == '<' || c == '(' || c == ')' || c == '{' || c == '}':
			return nil, fmt.Errorf("%q: put it in quotes if it is no shell's", c)
		default:
			begun = true
			word.WriteByte(c)
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("the quote %q does not end", quote)
	}
	next()
	return commands, nil
}
