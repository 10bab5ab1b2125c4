// SPDX-License-Identifier: Apache-2.0
//
// Many processes that start CUDA at the same moment: starts PROCESSES. All stay until the last has started, so that the ledger
// has each one's slot, with what the library cost it; then a step is printed and a line waited for.
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

static int begin(void) {
    handle context;
    pointer at;
    driver_reach();
    return cu.cuInit(0) != SUCCESS || cu.cuDevicePrimaryCtxRetain(&context, 0) != SUCCESS || cu.cuCtxSetCurrent(context) != SUCCESS ||
           cu.cuMemAlloc(&at, MIB) != SUCCESS;
}

int main(int count, char **arguments) {
    int go[2], done[2], end[2], good = 0;
    char byte;
    if (count != 2 || pipe(go) != 0 || pipe(done) != 0 || pipe(end) != 0) return 2;
    int processes = atoi(arguments[1]);
    for (int i = 0; i < processes; i++) {
        if (fork() != 0) continue;
        close(go[1]);
        close(end[1]);
        if (read(go[0], &byte, 1) != 0) _exit(1);
        byte = begin() ? 'b' : 'g';
        if (write(done[1], &byte, 1) != 1 || read(end[0], &byte, 1) != 0) _exit(1);
        _exit(0);
    }
    close(go[1]); // all at once
    for (int i = 0; i < processes && read(done[0], &byte, 1) == 1; i++) good += byte == 'g';
    printf("{\"step\":\"full\",\"pieces\":%d,\"error\":%d}\n", good, good == processes ? 0 : 2);
    fflush(stdout);
    (void)getchar();
    close(end[1]);
    while (wait(NULL) > 0) {
    }
    return 0;
}
