# Sourced by the scripts that run checks: one named, timed and bounded step after the other.

# step NAME LIMIT COMMAND..: runs the command, says how long it took, stops the script if it fails.
step() {
    local name="$1" limit="$2" started=$SECONDS status=0
    shift 2
    printf '\n=== %s\n' "$name"
    # In the foreground, so that Ctrl-C reaches the command; killed for good 30 s after its time.
    timeout --foreground --kill-after=30s "$limit" "$@" || status=$?
    if ((status == 124 || status == 137)); then
        printf '=== %s: not done within %s\n' "$name" "$limit" >&2
    elif ((status != 0)); then
        printf '=== %s: failed with exit code %d after %d s\n' "$name" "$status" $((SECONDS - started)) >&2
    else
        printf '=== %s: ok, %d s\n' "$name" $((SECONDS - started))
    fi
    return "$status"
}
