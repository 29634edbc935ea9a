# expect: kind=exception line=3
import socket
mine, _ = socket.socketpair(type=socket.SOCK_DGRAM)
mine.sendto(b"READY=1", "/run/systemd/notify")
