module exacta.dev/exacta

go 1.26
