"""Where the code under test comes from, and when it has changed.

    treeid        git's ids of content and trees, computed here (pure)
    examine       one file, link or oddity: what it is, read so that no two versions mix
    git           the only place that starts git
    gitrules      git's word on ignored paths, and when it is stale
    globs         ignore patterns read by pathspec: the user's own, and all others where git is absent
    ignore        which paths are left out; git decides wherever it can
    walk          the listing of the working tree, folder by folder
    standing      HEAD, the branch, and whether the tree differs from HEAD's
    worktree      the working tree as snapshots
    source        what tells of changed files: inotify (Linux), wholetree (watchfiles), poll (where neither can)
    subscription  one of them at a time, for the folders that there are
    watch         when to take the next snapshot

Nothing here writes into the workspace or the repository.
"""
