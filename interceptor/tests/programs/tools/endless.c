// SPDX-License-Identifier: Apache-2.0
//
// Launches a kernel that never ends, and waits to be killed.
#include <unistd.h>

#include "driver.h"

int main(void) {
    handle context, module, function;
    driver_reach();
    result error = cu.cuInit(0);
    if (error == SUCCESS) error = cu.cuDevicePrimaryCtxRetain(&context, 0);
    if (error == SUCCESS) error = cu.cuCtxSetCurrent(context);
    if (error == SUCCESS) error = cu.cuModuleLoadData(&module, "any");
    if (error == SUCCESS) error = cu.cuModuleGetFunction(&function, module, "fakegpu_endless");
    if (error == SUCCESS) error = cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    for (; error == SUCCESS;) pause();
    return error;
}
