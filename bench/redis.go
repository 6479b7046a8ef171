package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/weir-go/weir/bench/internal/worker"
	"github.com/weir-go/weir/internal/lab"
)

// outcomeOf returns the outcome of a check, without Here and Stray.
func outcomeOf(ok bool, err error) worker.Outcome {
	switch {
	case err != nil:
		return worker.Failed
	case ok:
		return worker.Admitted
	}
	return 0
}

func newRedisRate(q worker.Quota, addr string) (*worker.Instance, error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	l := redis_rate.NewLimiter(client)
	limit := redis_rate.Limit{Rate: 1, Burst: int(q.Units), Period: q.Interval}
	return &worker.Instance{Allow: func(key string) worker.Outcome {
		r, err := l.Allow(context.Background(), key, limit)
		return outcomeOf(err == nil && r.Allowed > 0, err)
	}, Close: client.Close}, nil
}

// gcra is the generic cell rate algorithm. The value of a key is the time, in microseconds, at
// which its count is empty. The script returns 1 if the check is admitted or else 0, and a time
// from which a caller can compute the retry time.
const gcra = `
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local interval, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local empty = math.max(tonumber(redis.call('GET', KEYS[1]) or now), now) + interval
if empty - now > interval * burst then
	return {0, empty - now - interval * burst}
end
redis.call('SET', KEYS[1], string.format('%.0f', empty), 'PX', math.ceil((empty - now) / 1000))
return {1, empty - now}`

// newGCRA returns the limiter of the script over rueidis, which pipelines the commands of all callers.
func newGCRA(q worker.Quota, addr string) (*worker.Instance, error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true})
	if err != nil {
		return nil, err
	}
	script := rueidis.NewLuaScript(gcra)
	args := []string{strconv.FormatInt(q.Interval.Microseconds(), 10), strconv.FormatInt(q.Units, 10)}
	return &worker.Instance{Allow: func(key string) worker.Outcome {
		answer, err := script.Exec(context.Background(), client, []string{key}, args).AsIntSlice()
		return outcomeOf(err == nil && len(answer) == 2 && answer[0] == 1, err)
	}, Close: func() error { client.Close(); return nil }}, nil
}

// redisServer is a server that saves no data, on a loopback port that is reserved for it.
type redisServer struct {
	addr    string
	release func() // releases the port
	client  *redis.Client
	cmd     *exec.Cmd
	dir     string
}

var errNoRedis = errors.New("no redis-server on PATH")

// startRedis starts a server; the error is errNoRedis if none is installed.
func startRedis() (*redisServer, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, errNoRedis
	}
	s := new(redisServer)
	if s.addr, s.release, err = lab.HoldAddr(); err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	_, port, err := net.SplitHostPort(s.addr)
	if err == nil {
		s.dir, err = os.MkdirTemp("", "weir-bench")
	}
	if err != nil {
		s.release()
		return nil, err
	}
	s.cmd = exec.Command(path, "--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no", "--daemonize", "no", "--dir", s.dir)
	lab.TieToParent(s.cmd)
	if err := s.cmd.Start(); err != nil {
		s.release()
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	s.client = redis.NewClient(&redis.Options{Addr: s.addr})
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if err = s.client.Ping(context.Background()).Err(); err == nil {
			return s, nil
		}
		if time.Since(begun) > worker.StartWait {
			return nil, errors.Join(fmt.Errorf("bench: redis-server does not answer at %s: %w", s.addr, err), s.end())
		}
	}
}

// end ends the server, which saves no data and needs no orderly shutdown.
func (s *redisServer) end() error {
	err := s.client.Close()
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait() // reports that the process was killed
	s.release()
	return errors.Join(err, os.RemoveAll(s.dir))
}

func (s *redisServer) flush() error { return s.client.FlushAll(context.Background()).Err() }

func (s *redisServer) version() (string, error) {
	info := s.client.InfoMap(context.Background(), "server")
	return info.Item("Server", "redis_version"), info.Err()
}
