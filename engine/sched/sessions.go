package sched

import (
	"slices"

	"exacta.dev/exacta/engine/cache"
)

// sessions are the sessions that have a request waiting or running, and those
// whose pages are pinned for the next one.
type sessions struct {
	byName map[sessionName]*session
	pinned []*session // in order of the end of their last request
}

type sessionName struct{ space, name string }

type session struct {
	name  sessionName
	first int64 // arrival of its first request
	open  int   // requests waiting or running
	pin   cache.Path
}

// open returns the session of a request that arrives, or nil if it names none.
func (t *sessions) open(space, name string, arrival int64) *session {
	if name == "" {
		return nil
	}
	key := sessionName{space, name}
	s := t.byName[key]
	if s == nil {
		s = &session{name: key, first: arrival}
		if t.byName == nil {
			t.byName = make(map[sessionName]*session)
		}
		t.byName[key] = s
	}
	s.open++
	return s
}

// closeSession ends a request of its session. If the request was resident, its
// pages are pinned in place of those of the session's request before. Of pinned
// sessions, those whose last request ended longest ago are let go while there
// are more than Config.Sessions, or they pin more than half of all pages.
func (c *Core) closeSession(s *sequence) {
	if s.session == nil {
		return
	}
	t := &c.sessions
	s.session.open--
	if c.prefix != nil && s.path.Depth() > 0 {
		c.prefix.Pin(s.path)
		c.unpin(s.session)
		s.session.pin = s.path
		t.pinned = append(t.pinned, s.session)
	}
	for len(t.pinned) > c.cfg.Sessions || c.pages.Pinned() > c.cfg.Pages/2 {
		c.unpin(t.pinned[0])
	}
	c.forgetSession(s.session)
}

// unpin lets a session's pages go, if it has any pinned.
func (c *Core) unpin(s *session) {
	i := slices.Index(c.sessions.pinned, s)
	if i < 0 {
		return
	}
	c.sessions.pinned = slices.Delete(c.sessions.pinned, i, i+1)
	c.prefix.Unpin(s.pin)
	s.pin = cache.Path{}
	c.forgetSession(s)
}

// forgetSession drops a session that has neither requests nor pages: if it goes
// on, it is a new one.
func (c *Core) forgetSession(s *session) {
	if s.open == 0 && s.pin.Depth() == 0 && c.sessions.byName[s.name] == s {
		delete(c.sessions.byName, s.name)
	}
}
