// One process that stands for election on etcd: the client, session and election of etcd's own packages, as their
// documentation shows them. It notes a hundred times a second whether it believes that it leads (lab/judge.py).
//
//	peer_etcd ENDPOINT PLACE LEASE NAME LOG
//
// Believing is: Campaign has returned, and the channel Done of its session, which keeps the lease alive, is not closed.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"go.etcd.io/etcd/clientv3"
	"go.etcd.io/etcd/clientv3/concurrency"
	"golang.org/x/sys/unix"
)

const period = 10 * time.Millisecond

type term struct {
	session  *concurrency.Session
	revision int64
}

var leading atomic.Pointer[term]

func believes() (bool, int64) {
	current := leading.Load()
	if current == nil {
		return false, 0
	}
	select {
	case <-current.session.Done():
		return false, 0
	default:
		return true, current.revision
	}
}

func boottime() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		log.Fatal(err)
	}
	return now.Nano()
}

func note(name, path string) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		log.Fatal(err)
	}
	for range time.Tick(period) {
		before := boottime()
		leads, epoch := believes()
		after := boottime()
		flag := 0
		if leads {
			flag = 1
		}
		fmt.Fprintf(file, "%d %d %s:%d %d %d %d\n", before, after, name, os.Getpid(), epoch, flag, flag)
	}
}

// stand leads once, until the session is lost, and says whether the process was asked to end.
func stand(asked context.Context, client *clientv3.Client, place string, lease int, name string) bool {
	session, err := concurrency.NewSession(client, concurrency.WithTTL(lease))
	if err != nil {
		log.Print(err)
		time.Sleep(100 * time.Millisecond)
		return asked.Err() != nil
	}
	election := concurrency.NewElection(session, place)
	waiting, cancel := context.WithCancel(asked)
	defer cancel()
	go func() {
		select {
		case <-session.Done(): // whoever waits under a lost session waits for nothing
			cancel()
		case <-waiting.Done():
		}
	}()
	if err := election.Campaign(waiting, name); err == nil {
		leading.Store(&term{session, election.Rev()})
		select {
		case <-session.Done():
		case <-asked.Done():
		}
		leading.Store(nil)
		if asked.Err() != nil {
			if err := election.Resign(context.Background()); err != nil {
				log.Print(err)
			}
		}
	}
	if asked.Err() == nil {
		return false
	}
	session.Close()
	return true
}

func main() {
	endpoint, place, name, path := os.Args[1], os.Args[2], os.Args[4], os.Args[5]
	lease, err := strconv.Atoi(os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	asked, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 5 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	go note(name, path)
	for !stand(asked, client, place, lease, name) {
	}
	time.Sleep(10 * period)
}
