# expect: kind=exception line=3
import socket
socket.socket(socket.AF_UNIX)
