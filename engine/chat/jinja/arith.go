package jinja

import (
	"errors"
	"fmt"
	"math"
	"strings"
)

// arith is an operator on two values.
func arith(r *render, op string, a, b any) (any, error) {
	if op == "~" {
		s, err := r.str(a)
		if err != nil {
			return nil, err
		}
		t, err := r.str(b)
		if err != nil {
			return nil, err
		}
		return join(r, s, t)
	}
	if x, ok := integer(a); ok {
		if y, ok := integer(b); ok {
			return intArith(op, x, y)
		}
	}
	if x, y, ok := numbers(a, b); ok {
		return floatArith(op, x, y)
	}
	switch a := a.(type) {
	case string:
		if t, ok := b.(string); ok && op == "+" {
			return join(r, a, t)
		}
		if op == "%" {
			return percent(r, a, b)
		}
	case *List:
		if b, ok := b.(*List); ok && op == "+" && a.Tuple == b.Tuple {
			if err := r.made(elementBytes * (len(a.Items) + len(b.Items))); err != nil {
				return nil, err
			}
			return &List{append(append(make([]any, 0, len(a.Items)+len(b.Items)), a.Items...), b.Items...), a.Tuple}, nil
		}
	}
	if op == "*" {
		if n, ok := integer(b); ok {
			return repeat(r, a, n)
		}
		if n, ok := integer(a); ok {
			return repeat(r, b, n)
		}
	}
	return nil, fmt.Errorf("%s can't be put between %s and %s", op, what(a), what(b))
}

// join pays before it makes the text, since both may be as long as the limit.
func join(r *render, s, t string) (any, error) {
	if err := r.made(len(s) + len(t)); err != nil {
		return nil, err
	}
	return s + t, nil
}

// repeat is a text or list times a number.
func repeat(r *render, v any, n int64) (any, error) {
	n = max(n, 0)
	pay := func(size int) error {
		if size > 0 && n > int64(r.bytes/size)+1 {
			n = int64(r.bytes/size) + 2
		}
		return r.made(size * int(n))
	}
	switch v := v.(type) {
	case string:
		if err := pay(len(v)); err != nil || v == "" {
			return "", err
		}
		return strings.Repeat(v, int(n)), nil
	case *List:
		if err := pay(elementBytes * len(v.Items)); err != nil || len(v.Items) == 0 {
			return &List{Tuple: v.Tuple}, err
		}
		out := make([]any, 0, len(v.Items)*int(n))
		for range n {
			out = append(out, v.Items...)
		}
		return &List{out, v.Tuple}, nil
	}
	return nil, fmt.Errorf("%s can't be repeated", what(v))
}

var errRange = errors.New("the integer is beyond 64 bits")

func intArith(op string, x, y int64) (any, error) {
	switch op {
	case "+":
		if z := x + y; (z > x) == (y > 0) {
			return z, nil
		}
		return nil, errRange
	case "-":
		if z := x - y; (z < x) == (y > 0) {
			return z, nil
		}
		return nil, errRange
	case "*":
		if z := x * y; x == 0 || z/x == y && !(x == -1 && y == math.MinInt64) {
			return z, nil
		}
		return nil, errRange
	case "**":
		if y >= 0 {
			return power(x, y)
		}
		return floatArith(op, float64(x), float64(y))
	case "/":
		return floatArith(op, float64(x), float64(y))
	}
	if y == 0 {
		return nil, errors.New("division by zero")
	}
	if y == -1 { // the quotient of the least integer would not fit
		if op == "%" {
			return int64(0), nil
		}
		return intArith("-", 0, x)
	}
	q, m := x/y, x%y
	if m != 0 && (m < 0) != (y < 0) {
		q, m = q-1, m+y
	}
	if op == "//" {
		return q, nil
	}
	return m, nil
}

func power(x, y int64) (any, error) {
	if x >= -1 && x <= 1 {
		y %= 2
		if x == 0 || x == 1 {
			return x, nil
		}
		return 1 - 2*y, nil
	}
	out := any(int64(1))
	for range y {
		var err error
		if out, err = intArith("*", out.(int64), x); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func floatArith(op string, x, y float64) (any, error) {
	switch op {
	case "+":
		return x + y, nil
	case "-":
		return x - y, nil
	case "*":
		return x * y, nil
	case "**":
		return math.Pow(x, y), nil
	}
	if y == 0 {
		return nil, errors.New("division by zero")
	}
	switch op {
	case "/":
		return x / y, nil
	case "//":
		return math.Floor(x / y), nil
	}
	m := math.Mod(x, y)
	if m != 0 && (m < 0) != (y < 0) {
		m += y
	}
	return m, nil
}
