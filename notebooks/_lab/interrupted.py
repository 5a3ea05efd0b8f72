"""A cell that does not end is interrupted, the next one runs, and the kernel ends with its client."""

import os
import time

from jupyter_client import KernelManager


def run(client, code, timeout):
    """Runs a cell, and returns the status of its reply."""
    return client.execute_interactive(code, timeout=timeout, output_hook=lambda _: None)["content"]["status"]


manager = KernelManager(kernel_name="gophernotes")
manager.start_kernel()
client = manager.client()
client.start_channels()
client.wait_for_ready(timeout=60)
assert run(client, "x := 1", 60) == "ok"
message = client.execute("for { x++ }")
while client.get_iopub_msg(timeout=60)["content"].get("execution_state") != "busy":
    pass
manager.interrupt_kernel()
reply = client.get_shell_msg(timeout=60)
while reply["parent_header"].get("msg_id") != message:
    reply = client.get_shell_msg(timeout=60)
assert reply["content"]["status"] == "error", reply["content"]
assert run(client, "x > 0", 60) == "ok"
client.stop_channels()
manager.shutdown_kernel(now=True)

# A client that dies leaves a busy kernel, which must end by itself.
read, write = os.pipe()
child = os.fork()
if child == 0:
    manager = KernelManager(kernel_name="gophernotes")
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=60)
    client.execute("for { }")
    os.write(write, str(manager.provisioner.pid).encode())
    os.kill(os.getpid(), 9)
os.waitpid(child, 0)
kernel = int(os.read(read, 100))
for _ in range(600):
    try:
        os.kill(kernel, 0)
    except ProcessLookupError:
        break
    time.sleep(0.1)
else:
    os.kill(kernel, 9)
    raise SystemExit("the kernel runs on without its client")
print("a cell without an end is interrupted, and a kernel ends with its client")
