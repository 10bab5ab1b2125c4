# SPDX-License-Identifier: Apache-2.0
# Turns data/mig-profiles.yaml into the C tables that board.c includes.
# The file keeps one profile a line, so no YAML parser is needed. A board
# without memory slices has no known geometry and is left out; null becomes
# NONE, and board.c fills it in where something is needed.

function trim(s) { gsub(/^[ \t"]+|[ \t"]+$/, "", s); return s }
function after_colon(line) { sub(/^[^:]*:[ ]*/, "", line); return trim(line) }
function number(field, s) {
    if (!match($0, field ": [0-9.]+")) return "NONE"
    s = substr($0, RSTART, RLENGTH); sub(/^[^:]*: /, "", s); return s
}
function starts(s, parts, n, i, mask) {
    match($0, /starts: \[[0-9,]*\]/)
    s = substr($0, RSTART + 9, RLENGTH - 10)
    n = split(s, parts, ","); mask = 0
    for (i = 1; i <= n; i++) mask += 2 ^ parts[i]
    return mask
}
function flush() {
    if (key != "" && slices != "null" && rows != "") {
        ident = key; gsub(/-/, "_", ident)
        printf "static const struct fg_profile profiles_%s[] = {\n%s};\n", ident, rows
        boards = boards sprintf("    {\"%s\", \"%s\", %s, 0x%s, profiles_%s, sizeof profiles_%s / sizeof profiles_%s[0]},\n", \
            key, arch, slices, pci, ident, ident, ident)
    }
    rows = ""
}
/^nvmlConstants:/ {
    line = $0; sub(/^[^{]*\{/, "", line); sub(/\}.*/, "", line)
    count = split(line, entries, ",")
    for (e = 1; e <= count; e++) { split(entries[e], kv, ":"); constant[trim(kv[1])] = trim(kv[2]) }
}
/^- key:/ { flush(); key = after_colon($0); slices = "null"; pci = "0" }
/^  arch:/ { arch = after_colon($0) }
/^  memorySlices:/ { slices = after_colon($0) }
/^  pciDeviceIds:/ { if (match($0, /\["[0-9A-F]+/)) pci = substr($0, RSTART + 2, RLENGTH - 2) }
/^  - \{name:/ {
    match($0, /name: "[^"]*"/); name = substr($0, RSTART + 7, RLENGTH - 8)
    match($0, /nvml: "[^"]*"/); nvml = substr($0, RSTART + 7, RLENGTH - 8)
    gib = number("gib"); mib = gib == "NONE" ? "NONE" : int(gib * 1024 + 0.5)
    rows = rows sprintf("    {\"%s\", %s, %s, %s, 0x%x, %s, %s, %s, %s, %s, %s, %s, %s, %s},\n", name, constant[nvml], \
        number(" id"), number(" g"), starts(), number("size"), number("max"), number("sm"), number("ce"), \
        number("dec"), number("enc"), number("jpeg"), number("ofa"), mib)
}
END {
    flush()
    printf "static const struct board_row board_rows[] = {\n%s};\n", boards
}
