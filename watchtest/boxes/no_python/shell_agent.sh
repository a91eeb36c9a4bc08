# Runs inside a box without Python. Usage: sh shell_agent.sh ACTION HOME ROOT HOLDER [...]
#
# list       print the state of the paths that are ours
# apply      move the tree from the stage into place, then list
# run        run a command in a folder, kill all it started, report how it ended
# sweep      send a signal to all processes of a run; KILL: until none is left
# remember   store a small document
#
# POSIX sh. Paths are never parsed: they are passed in files, separated by NUL, and begin with "./".

action=$1 home=$2 root=$3 holder=$4
shift 4
here=$home/plain
stage=.watchtest/stage
mark=WATCHTEST_JOB=$home

fail() {
    printf '%s\n' "$1" >&2
    exit "${2:-90}"
}

each() { # LIST COMMAND...: run the command with all paths of the list, as many at once as fit
    list=$1
    shift
    [ ! -s "$list" ] || xargs -0 "$@" < "$list"
}

this() { # ACTION LIST [...]: run this script for all paths of the list
    sub=$1 list=$2
    shift 2
    each "$list" sh "$here/shell_agent.sh" "$sub" "$home" "$root" "$holder" "$@"
}

# -- the tree ------------------------------------------------------------------------------------------

is_reachable() { # no parent is a symlink, which could lead out of the root
    way=. rest=${1#./}
    while [ "$rest" != "${rest#*/}" ]; do
        way=$way/${rest%%/*} rest=${rest#*/}
        [ -d "$way" ] && [ ! -L "$way" ] || return 1
    done
}

is_folder() {
    [ -d "$1" ] && [ ! -L "$1" ]
}

merge() { # FROM TO: move the contents of a folder into another; whole folders by one rename where possible
    for entry in "$1"/* "$1"/.[!.]* "$1"/..?*; do
        [ -e "$entry" ] || [ -L "$entry" ] || continue # a pattern that matched nothing
        place=$2/${entry##*/}
        if is_folder "$entry" && is_folder "$place"; then
            merge "$entry" "$place" || return 1
            continue
        elif is_folder "$place"; then
            rm -rf "$place" || return 1
        elif is_folder "$entry" || [ -L "$place" ]; then
            rm -f "$place" || return 1
        fi
        if is_folder "$entry"; then
            mv -f "$entry" "$place" || return 1
        else
            set -- "$@" "$entry"
        fi
    done
    [ $# -gt 2 ] || return 0
    into=$2
    shift 2
    mv -f "$@" "$into/"
}

list_tree() {
    echo "== stat"
    each "$here/paths" stat -c '%f %s %n' 2> /dev/null
    echo "== hash"
    # Regular files only: reading a pipe would never end.
    this files-of "$here/files" 2> /dev/null | xargs -0 "$(cat "$here/hash")" 2> /dev/null
    echo "== links"
    this targets-of "$here/links" 2> /dev/null
    echo "== end"
}

apply() {
    # The ledger is written first, so that a crash in between leaves no file that is not known to be ours.
    mv -f "$stage/owned" "$home/owned.new" && mv -f "$home/owned.new" "$home/owned" || fail "cannot write $home/owned"
    rm -f "$here/manifest"
    this gone-files "$stage/remove" > "$stage/remove.files" || fail "cannot list what is to be removed"
    each "$stage/remove.files" rm -f || fail "cannot remove what is gone from the source"
    this gone-folders "$stage/hollow" > "$stage/hollow.folders" || fail "cannot list what is to be removed"
    each "$stage/hollow.folders" rmdir 2> /dev/null # a folder that still contains the box's own files stays
    # Use the box's own clock: build tools compare these times with those of their output.
    find "$stage/tree" -type f -exec touch {} + 2> /dev/null
    merge "$stage/tree" . || fail "cannot write into the tree"
    each "$stage/symlinks" -n 2 sh "$here/shell_agent.sh" link "$home" "$root" "$holder" || fail "cannot make symlinks"
    for name in paths files links hash manifest; do
        mv -f "$stage/$name" "$here/$name.new" && mv -f "$here/$name.new" "$here/$name" || fail "cannot write $here"
    done
    rm -rf "$stage" && mkdir -p "$stage"
}

# -- processes -----------------------------------------------------------------------------------------

is_marked() { # by the environment that it was started with
    words=
    { while IFS= read -r words || [ -n "$words" ]; do
        case $words in *"$mark"*) return 0 ;; esac
        words=
    done < "$1/environ"; } 2> /dev/null
    return 1
}

look_at() { # PID: set state, parent and began (its start time); fail if it is gone
    line=
    { read -r line < "/proc/$1/stat"; } 2> /dev/null
    fields=${line##*) } # the command's name may contain anything; only numbers follow its bracket
    [ "$fields" != "$line" ] || return 1
    set -- $fields
    state=$1 parent=$2 began=${20}
}

note_who_is_here() {
    look_at 1 || return 0
    printf ' 1:%s ' "$began"
    for folder in /proc/[0-9]*; do
        look_at "${folder#/proc/}" && printf '%s:%s ' "${folder#/proc/}" "$began"
    done
}

find_ours() { # set `found` to all processes of the run, except `spare`; `before` existed before the run
    found=' ' others=
    for folder in /proc/[0-9]*; do
        pid=${folder#/proc/}
        case $spare in *" $pid "*) continue ;; esac
        look_at "$pid" || continue
        case $state in Z | X) continue ;; esac
        is_ours=
        if is_marked "$folder"; then
            is_ours=yes
        elif [ "$parent" = 1 ] && [ -n "$before" ]; then
            # Orphaned since the run began, and its environment has been cleared.
            case $before in *" $pid:$began "*) ;; *) is_ours=yes ;; esac
        fi
        if [ -n "$is_ours" ]; then found="$found$pid "; else others="$others$pid:$parent "; fi
    done
    is_growing=yes
    while [ -n "$is_growing" ]; do
        is_growing= rest=
        for one in $others; do
            case $found$spare in
            *" ${one#*:} "*) found="$found${one%%:*} " is_growing=yes ;;
            *) rest="$rest$one " ;;
            esac
        done
        others=$rest
    done
}

sweep() { # SIGNAL. KILL also ends what they start meanwhile, and fails if a process is left
    before=
    if [ -s "$here/before" ] && look_at 1; then
        read -r before < "$here/before"
        before=" $before "
        # Written before a restart of the container: its pids are those of other processes now.
        case $before in " 1:$began "*) ;; *) before= ;; esac
    fi
    find_ours
    if [ "$1" != KILL ]; then
        [ "$found" = ' ' ] || kill "-$1" $found 2> /dev/null
        return 0
    fi
    round=0
    while [ "$found" != ' ' ]; do
        round=$((round + 1))
        [ "$round" -le 100 ] || return 1
        kill -STOP $found 2> /dev/null # so that none can start another meanwhile
        stopped=$found
        find_ours
        kill -KILL $stopped $found 2> /dev/null
        [ "$round" -eq 1 ] || sleep 0.02 2> /dev/null || sleep 1
        find_ours
    done
    return 0
}

oom_kills() {
    for file in /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control; do
        { while read -r key value; do
            [ "$key" != oom_kill ] || { echo "$value"; return; }
        done < "$file"; } 2> /dev/null
    done
    echo 0
}

full_disk() { # the first folder with less than 64 KB left
    for folder in "$root" "$home" /tmp; do
        set -- $(df -P -k "$folder" 2> /dev/null | tail -n 1)
        case ${4:-many} in *[!0-9]*) continue ;; esac
        [ "$4" -ge 64 ] || { echo "$folder"; return; }
    done
}

watch_the_host() { # in the background; our stdin ends when the host is gone
    read -r self rest < /proc/self/stat
    while read -r word; do :; done
    spare=" $self "
    sweep KILL
}

run() { # TOKEN FOLDER COMMAND...
    token=$1 place=$2
    shift 2
    rm -rf "$here/report"
    note_who_is_here > "$here/before"
    ooms=$(oom_kills)
    trap : INT TERM HUP # signals are meant for the command, not for us
    exec 3<&0
    watch_the_host <&3 > /dev/null 2>&1 &
    dog=$!
    echo "$$ $dog" > "$here/supervisor"
    code=127
    if ! cd "$root/$place"; then
        echo "watchtest: cannot start $1: there is no folder $place" >&2
    elif ! command -v "$1" > /dev/null; then
        echo "watchtest: cannot start $1: No such file or directory" >&2
    else
        (
            { echo 1000 > /proc/self/oom_score_adj; } 2> /dev/null
            trap - INT TERM HUP
            exec 3<&-
            exec "$@"
        ) < /dev/null
        code=$?
    fi
    spare=" $$ $dog "
    left=0
    sweep KILL || left=1
    rm -f "$here/before" "$here/supervisor"
    full=
    [ "$code" -eq 0 ] || full=$(full_disk)
    kill -KILL "$dog" 2> /dev/null
    printf '%s %s %s %s %s\n' "$token" "$code" "$left" "$(($(oom_kills) - ooms))" "$full" >&2
    exit 0
}

# -- actions -------------------------------------------------------------------------------------------

case $action in
list | apply | run | remember)
    read -r now < "$here/holder" && [ "$now" = "$holder" ] || fail "another watcher has taken this box" 97
    ;;
esac
cd "$root" || fail "there is no folder $root"
case $action in
list) list_tree ;;
apply)
    apply
    list_tree
    ;;
remember) printf '%s' "$1" > "$home/remembered.json.new" && mv -f "$home/remembered.json.new" "$home/remembered.json" ;;
run) run "$@" ;;
sweep)
    # KILL with "all" kills the supervisor, too.
    spare=' '
    if [ "${2:-}" != all ] && [ -s "$here/supervisor" ]; then
        read -r spare < "$here/supervisor"
        spare=" $spare "
    fi
    sweep "$1"
    ;;
files-of) for path; do [ -f "$path" ] && [ ! -L "$path" ] && printf '%s\0' "$path"; done ;;
targets-of) for path; do if [ -L "$path" ]; then readlink -n "$path" | "$(cat "$here/hash")"; else echo none; fi; done ;;
gone-files) for path; do is_folder "$path" || { is_reachable "$path" && printf '%s\0' "$path"; }; done ;;
gone-folders) for path; do is_folder "$path" && is_reachable "$path" && printf '%s\0' "$path"; done ;;
link)
    if is_folder "$2"; then rm -rf "$2"; else rm -f "$2"; fi && ln -s -- "$1" "$2"
    exit
    ;;
*) fail "unknown action $action" ;;
esac
case $action in files-of | targets-of | gone-files | gone-folders) exit 0 ;; esac
