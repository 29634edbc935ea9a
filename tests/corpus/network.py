# expect: kind=exception line=3
import socket
socket.create_connection(("127.0.0.1", 9), timeout=2)
