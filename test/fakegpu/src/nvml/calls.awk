# SPDX-License-Identifier: Apache-2.0
# From the list of symbols: an enum of the calls, their names, and for each a weak
# function that answers NOT_SUPPORTED until a real one takes its place.
# -v part=enum|names|stubs
/^nvml/ { call[n++] = $1 }
END {
    if (part == "enum") {
        print "enum nv_call {"
        for (i = 0; i < n; i++) printf "    CALL_%s,\n", call[i]
        print "    CALL_COUNT\n};"
    } else if (part == "names") {
        print "const char *const nv_call_names[] = {"
        for (i = 0; i < n; i++) printf "    \"%s\",\n", call[i]
        print "};"
    } else {
        print "#include \"call.h\"\n"
        for (i = 0; i < n; i++)
            printf "__attribute__((weak)) NV_API nv_return %s(void) { return nv_not_supported(CALL_%s); }\n", call[i], call[i]
    }
}
