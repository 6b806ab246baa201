module exacta.dev/exacta/tools

go 1.26
